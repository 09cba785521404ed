"""Locks with a lease, for programs.

>>> from leasehold import Client, Held
>>> client = Client("http://127.0.0.1:8080", owner="worker-1")          # doctest: +SKIP
>>> with client.lock("db/migrate", ttl=30, wait=10) as lease:           # doctest: +SKIP
...     for batch in batches:
...         lease.check()
...         store.write(batch, token=lease.fencing_token)

A lock is held under a lease that a thread of the client keeps alive. The lease is valid, then in jeopardy when no renewal
was confirmed for half of its length, then lost; all counted on the client's own clock from before each request was sent,
so that the work stops before the server can give the lock to another. A writer that was stopped by force cannot stop by
itself: against that, what is written to compares fencing tokens, see ``Fence``.
"""

from ._aio import (
    AsyncApi,
    AsyncClient,
    AsyncElection,
    AsyncLeadership,
    AsyncLease,
    AsyncLock,
    AsyncRegister,
    AsyncSession,
)
from ._clock import Clock, SystemClock, TestClock
from ._duration import Duration
from ._machine import Standing, State
from ._names import byte_range, subtree
from ._payload import Claim
from ._spec import Retry
from ._sync import Api, Client, Election, Leader, Leadership, Lease, Lock, Mutex, Register, Session
from ._version import VERSION
from ._watch import AsyncWatch, Event, Watch
from .errors import (
    Closed,
    Deadlock,
    Held,
    Holder,
    LeaseholdError,
    LeaseLost,
    Problem,
    Refused,
    StaleFence,
    Unreachable,
    UsageError,
    WaitEdge,
)
from .fence import Fence

__version__ = VERSION

__all__ = [
    "Api",
    "AsyncApi",
    "AsyncClient",
    "AsyncElection",
    "AsyncLeadership",
    "AsyncLease",
    "AsyncLock",
    "AsyncRegister",
    "AsyncSession",
    "AsyncWatch",
    "Claim",
    "Client",
    "Clock",
    "Closed",
    "Deadlock",
    "Duration",
    "Election",
    "Event",
    "Fence",
    "Held",
    "Holder",
    "Leader",
    "Leadership",
    "Lease",
    "LeaseLost",
    "LeaseholdError",
    "Lock",
    "Mutex",
    "Problem",
    "Refused",
    "Register",
    "Retry",
    "Session",
    "StaleFence",
    "Standing",
    "State",
    "SystemClock",
    "TestClock",
    "Unreachable",
    "UsageError",
    "WaitEdge",
    "Watch",
    "byte_range",
    "subtree",
]

"""The client's side of the promise, without a clock, a network or a thread.

::

     asked: acquire, release, abandon --+                +--> connect to this server
     heard: answer, failure, up, down --+--> Machine ----+--> send this request, cancel that one
     the time --------------------------+  (one client)  +--> tell: granted, renewed, jeopardy, lost, released
                                                         +--> wake me then

A port of the machine of the Rust SDK, and held to it by the vectors in ``sdk/vectors/machine``. Moments and lengths are
integers in nanoseconds; moments come in as arguments. Every input takes the time first and works off what has become
due before it looks at the input itself, so a process that slept through its lease learns that before anything else.
"""

from .machine import Machine
from .types import (
    Action,
    Answer,
    Ask,
    Cancel,
    Connect,
    End,
    Ended,
    Failure,
    Granted,
    Jitter,
    Key,
    Loss,
    News,
    Refusal,
    Released,
    Renewed,
    Request,
    Send,
    Settings,
    Standing,
    State,
    Tell,
    Wait,
)

__all__ = [
    "Action",
    "Answer",
    "Ask",
    "Cancel",
    "Connect",
    "End",
    "Ended",
    "Failure",
    "Granted",
    "Jitter",
    "Key",
    "Loss",
    "Machine",
    "News",
    "Refusal",
    "Released",
    "Renewed",
    "Request",
    "Send",
    "Settings",
    "Standing",
    "State",
    "Tell",
    "Wait",
]

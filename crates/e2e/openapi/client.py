"""Uses a client that openapi-python-client has generated, against a real server. Arguments: the client's folder, the server."""

import datetime
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])

from generated import Client
from generated.api.locks import acquire_lock, get_lock, list_locks, release_lock, renew_lock
from generated.api.watch import poll_events
from generated.models import (
    AcquireRequest,
    Code,
    EndedEvent,
    Grant,
    GrantedEvent,
    LockState,
    Problem,
    Released,
    ReleaseRequest,
    Renewed,
    RenewRequest,
)

LOCK = "generated/python"


def main():
    client = Client(base_url=sys.argv[2])
    before = str(list_locks.sync(client=client).revision)

    grant = acquire(client, "worker-a")
    assert isinstance(grant, Grant), grant
    assert isinstance(grant.expires_at, datetime.datetime), grant

    refused = acquire(client, "worker-b")
    assert isinstance(refused, Problem), refused
    assert refused.code == Code.LOCK_HELD and refused.current_owner_id == "worker-a", refused

    proof = {
        "owner_id": "worker-a",
        "lease_id": grant.lease_id,
        "fencing_token": grant.fencing_token,
    }
    renewed = renew_lock.sync(LOCK, client=client, body=RenewRequest(**proof))
    assert isinstance(renewed, Renewed), renewed

    page = list_locks.sync(client=client, prefix="generated/")
    assert [lock.lock for lock in page.locks] == [LOCK], page
    assert page.locks[0].holders[0].fencing_token == grant.fencing_token, page

    released = release_lock.sync(LOCK, client=client, body=ReleaseRequest(**proof))
    assert isinstance(released, Released) and released.released, released
    assert get_lock.sync(LOCK, client=client).state == LockState.FREE

    events = []
    # The news of a release may come a moment later than its answer.
    while not any(isinstance(event, EndedEvent) for event in events):
        polled = poll_events.sync(client=client, prefix="generated/", after=before, wait_ms=5000)
        assert polled.events, "an event comes in time"
        events, before = events + polled.events, polled.cursor
    granted, ended = events[0], events[-1]
    assert isinstance(granted, GrantedEvent), granted
    assert granted.lock == LOCK and granted.fencing_token == grant.fencing_token, granted
    assert ended.reason == "released", ended


def acquire(client, owner):
    return acquire_lock.sync(LOCK, client=client, body=AcquireRequest(owner_id=owner, ttl_ms=30_000))


main()

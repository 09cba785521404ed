"""Every shape of the package once: ``python tour.py``, with the server that ``LEASEHOLD_ADDR`` names."""

import asyncio
import threading

from leasehold import (
    AsyncClient,
    Client,
    Deadlock,
    Fence,
    Held,
    Lease,
    LeaseLost,
    Retry,
    StaleFence,
    TestClock,
    Unreachable,
)

store = Fence()  # in the place of a database that compares fencing tokens


def locks(client: Client) -> None:
    with client.lock("db/migrate", ttl=30, wait=10) as lease:
        for _batch in range(3):
            lease.check()
            store.accept(lease.fencing_token)
        assert client.lock("db/migrate").try_acquire() is None
        try:
            client.lock("db/migrate", owner="worker-2").acquire(retry=Retry(attempts=2, pause_max=0.05))
        except Held as held:
            print(held.holders[0].owner_id, "has it,", held.waiters, "wait; try again in", held.retry_after)
    lease = client.lock("x").acquire_with_retry()
    stop = threading.Event()
    lease.on_jeopardy(stop.set)
    assert not lease.lost.wait(0.01)
    assert lease.verify()
    lease.release()
    lease.release_once()
    with client.lock("pool", permits=5, wait=None), client.lock("pool", permits=5, wait=None):
        pass
    lease = client.lock("later", heartbeat=False).acquire()
    lease.start_heartbeat()
    lease.release()


def sessions_and_sets(client: Client) -> None:
    with client.session(ttl=30) as s, s.lock("a"), s.lock("b", shared=True) as b:
        assert b.is_valid
    with client.lock_set(["path:/srv/a/**", ("inode:42@100..200", "shared")]) as lease:
        print("both, under one token:", lease.fencing_token, lease.locks)


def elections_and_fences(client: Client) -> None:
    with client.election("cron").campaign("10.0.0.7:9000") as lead:
        leader = next(client.election("cron").observe())
        assert leader is not None
        print("leads:", leader.value)
        register = client.fence("disk")
        register.accept(lead.fencing_token)
        try:
            register.accept(lead.fencing_token - 1)
        except StaleFence as stale:
            print("too late: seen was", stale.high_water)
        lead.resign()


def jobs_and_mutexes(client: Client) -> None:
    @client.locked("nightly", ttl=60, wait=0, on_held="skip")
    def nightly(lease: Lease) -> int:
        assert nightly() is None, "it runs already"
        return lease.fencing_token

    print("the job ran with token", nightly())
    mutex = client.mutex("legacy")
    assert mutex.acquire(blocking=True, timeout=1)
    assert mutex.locked()
    assert not client.mutex("legacy", owner="other").acquire(blocking=False)
    mutex.release()


def errors(client: Client) -> None:
    x, y = client.lock("x", owner="a").acquire(), client.lock("y", owner="b").acquire()
    waiting = threading.Thread(target=lambda: client.lock("y", owner="a", wait=10).acquire().release())
    waiting.start()
    y.wait_until_wanted(5)
    try:
        client.lock("x", owner="b", wait=10).acquire()
    except Deadlock as deadlock:
        print("in a circle:", [(edge.waiter, edge.lock) for edge in deadlock.cycle])
    y.release()
    waiting.join()
    x.release()
    try:
        Client("http://127.0.0.1:1", patience=0.1).lock("x").acquire()
    except Unreachable as unreachable:
        print("nobody answered, and it was", unreachable.outcome)


async def with_asyncio() -> None:
    clock = TestClock()
    async with AsyncClient.from_env(clock=clock) as c, c.lock("report", ttl=30) as lease:
        await asyncio.sleep(0)
        print("a report with token", lease.fencing_token)
    async with AsyncClient.from_env(clock=clock) as c:
        try:
            async with c.lock("report", ttl=30):
                clock.advance(16)  # as if the machine had slept for so long
                await asyncio.sleep(60)  # is cancelled
        except LeaseLost as lost:
            print("told to stop:", lost.by)


def main() -> None:
    client = Client.from_env(owner="worker-1")
    with client:
        for shape in (locks, sessions_and_sets, elections_and_fences, jobs_and_mutexes, errors):
            shape(client)
    asyncio.run(with_asyncio())
    print("the tour is over")


if __name__ == "__main__":
    main()

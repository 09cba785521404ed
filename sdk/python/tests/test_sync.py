"""The shapes of the blocking client."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from leasehold import Client, Closed, Held, Lease, LeaseLost, Refused, Retry, State, TestClock, Unreachable, UsageError
from leasehold._belief import Belief

from .fake import Fake, Json, problem


def test_body_runs_with_the_lock_and_gives_it_back(client: Client, fake: Fake) -> None:
    with client.lock("a", ttl=30) as lease:
        assert lease.fencing_token == 1
        assert lease.is_valid
        assert lease.verify()
        assert "a" in fake.held
    assert not fake.held
    assert lease.state is State.LOST


def test_body_never_runs_without_the_lock(client: Client) -> None:
    with client.lock("a"):
        with pytest.raises(Held) as held, client.lock("a", owner="other"):
            raise AssertionError("it ran")
        assert held.value.retry_after == 0.01
        assert client.lock("a", owner="other").try_acquire() is None


def test_body_that_raises_gives_the_lock_back_and_raises_that(client: Client, fake: Fake) -> None:
    with pytest.raises(ZeroDivisionError), client.lock("a"):
        _ = 1 / 0
    assert not fake.held


def test_work_that_ended_after_the_lease_was_over_is_told(client: Client, clock: TestClock) -> None:
    with pytest.raises(LeaseLost) as lost, client.lock("a", ttl=30):
        clock.advance(31)
    assert lost.value.by == "lapse"


def test_error_of_the_body_is_not_hidden_by_the_loss(client: Client, clock: TestClock) -> None:
    with pytest.raises(ZeroDivisionError), client.lock("a", ttl=30):
        clock.advance(31)
        _ = 1 / 0


def test_check_reads_the_clock(client: Client, clock: TestClock, fake: Fake) -> None:
    lease = client.lock("a", ttl=30, heartbeat=False).acquire()
    lease.check()
    clock.advance(15)
    with pytest.raises(LeaseLost) as lost:
        lease.check()
    assert lost.value.by == "jeopardy"
    assert lease.time_to_work == 0
    assert 14 < lease.time_left <= 15
    clock.advance(15)
    with pytest.raises(LeaseLost) as lost:
        lease.check()
    assert lost.value.by == "lapse"


def test_callbacks_and_moments_tell_of_the_end(client: Client, clock: TestClock) -> None:
    lease = client.lock("a", ttl=30, heartbeat=False).acquire()
    told, over = threading.Event(), threading.Event()
    lease.on_jeopardy(told.set)
    lease.on_lost(over.set)
    assert not lease.jeopardy.is_set()
    assert not lease.lost.wait(0)
    clock.advance(15)
    assert lease.jeopardy.wait(5)
    assert told.wait(5)
    assert not over.is_set()
    clock.advance(15)
    assert lease.lost.wait(5)
    assert over.wait(5)


def test_release_calls_nobody_back(client: Client) -> None:
    lease = client.lock("a").acquire()
    told = threading.Event()
    lease.on_jeopardy(told.set)
    lease.release()
    assert lease.lost.is_set()
    assert not told.wait(0.05)


def test_release_says_what_happened(client: Client, fake: Fake) -> None:
    lease = client.lock("a").acquire()
    fake.held.clear()
    with pytest.raises(LeaseLost) as lost:
        lease.release()
    assert (lost.value.by, lost.value.code) == ("server", "not_holder")
    again = client.lock("a").acquire()
    fake.held.clear()
    again.release_once()
    again.release_once()


def test_every_request_has_its_own_id_and_keeps_it(client: Client, fake: Fake) -> None:
    tries = 0

    def unsure(method: str, path: str, body: Json) -> tuple[int, Json] | None:
        nonlocal tries
        if path.endswith("/acquire"):
            tries += 1
            if tries < 3:
                return 503, {**problem("store_unavailable"), "status": 503}
        return None

    fake.instead = unsure
    client.lock("a").acquire().release()
    client.lock("b").acquire().release()
    ids = [body["request_id"] for _, path, body in fake.seen if path.endswith("/acquire")]
    assert len(ids) == 4
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert len(ids[0]) == 32


def test_wait_is_cut_and_goes_on_with_its_ticket(client: Client, fake: Fake) -> None:
    def queue(method: str, path: str, body: Json) -> tuple[int, Json] | None:
        if path.endswith("/acquire") and body.get("ticket") != "t2":
            return 409, problem("lock_held", ticket="t2" if "ticket" in body else "t1")
        return None

    fake.instead = queue
    client.lock("a", wait=None).acquire().release()
    asked = [(body["wait_ms"], body.get("ticket")) for _, path, body in fake.seen if path.endswith("/acquire")]
    assert asked == [(50_000, None), (50_000, "t1"), (50_000, "t2")]


def test_retries_are_bounded_and_only_for_what_passes(client: Client, fake: Fake) -> None:
    with client.lock("a"):
        with pytest.raises(Held):
            client.lock("a", owner="x").acquire(retry=Retry(attempts=3, pause=0.001, pause_max=0.01))
        assert sum(path.endswith("/acquire") for _, path, _ in fake.seen) == 4
    fake.instead = lambda *_: (400, problem("invalid_lock_name"))
    with pytest.raises(Refused) as refused:
        client.lock("a").acquire_with_retry()
    assert refused.value.code == "invalid_lock_name"


def test_set_is_one_lease(client: Client, fake: Fake) -> None:
    with client.lock_set(["a", ("b", "shared")]) as lease:
        assert lease.locks == ["a", "b"]
        assert set(fake.held) == {"a", "b"}
    with pytest.raises(UsageError):
        client.lock_set("ab")
    with pytest.raises(UsageError):
        client.lock("a", shared=True, permits=2)


def test_decorator_runs_under_the_lock_or_not_at_all(client: Client) -> None:
    @client.locked("nightly", ttl=60)
    def nightly(what: str, lease: Lease) -> str:
        assert lease.is_valid
        return what

    @client.locked("nightly", on_held="skip", owner="other")
    def skipped() -> str:
        raise AssertionError("it ran")

    assert nightly("done") == "done"
    with client.lock("nightly"):
        with pytest.raises(Held):
            nightly("done")
        assert skipped() is None
    assert nightly.__name__ == "nightly"


def test_mutex_has_the_shape_of_a_lock(client: Client, fake: Fake) -> None:
    one, other = client.mutex("m", owner="one"), client.mutex("m", owner="other")
    assert one.acquire()
    assert one.locked()
    assert not other.acquire(blocking=False)
    one.release()
    with pytest.raises(RuntimeError):
        one.release()
    with other:
        assert other.lease is not None
    assert not fake.held


def test_dropped_lease_warns_and_is_given_back(client: Client, fake: Fake) -> None:
    lease = client.lock("a").acquire()
    with pytest.warns(ResourceWarning, match="dropped"):
        del lease
        gc.collect()
    deadline = time.monotonic() + 5
    while fake.held and time.monotonic() < deadline:
        pass
    assert not fake.held


def test_close_gives_all_back_and_is_final(fake: Fake) -> None:
    client = Client(fake.url)
    lease = client.lock("a").acquire()
    client.close()
    client.close()
    assert not fake.held
    assert lease.state is State.LOST
    with pytest.raises(Closed):
        client.lock("a").acquire()
    Client(fake.url).close()


def test_unreachable_is_told_apart_and_says_what_happened(fake: Fake) -> None:
    with Client("http://127.0.0.1:1", patience=0.2) as client:
        with pytest.raises(Unreachable) as error:
            client.lock("a").acquire()
        assert error.value.outcome == "not_applied"
        assert not isinstance(error.value, Refused)
        with pytest.raises(Unreachable):
            client.api.get("a")
        with pytest.raises(Unreachable):
            client.connect()
    with Client(fake.url) as client:
        assert client.connect() is client


def test_server_of_another_interface_is_refused(fake: Fake) -> None:
    fake.api = ["v7"]
    with Client(fake.url) as client:
        client.connect()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                client.api.get("a")
            except UsageError as error:
                assert "v7" in str(error)
                return
            except Refused:
                continue
        raise AssertionError("it goes on")


def test_token_and_name_of_the_package_are_shown(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_ADDR", fake.url)
    monkeypatch.setenv("LEASEHOLD_TOKEN", "lk_1_secret")
    monkeypatch.setenv("LEASEHOLD_NAMESPACE", "billing")
    with Client.from_env(owner="me") as client:
        assert client.namespace == "billing"
        client.lock("a").acquire().release()
    headers = fake.seen[-1][2]["headers"]
    assert headers["Authorization"] == "Bearer lk_1_secret"
    assert headers["User-Agent"].startswith("leasehold-python/")
    for wrong in ("", "a b", "a\nb"):
        with pytest.raises(UsageError):
            Client(fake.url, token=wrong)


def test_settings_that_cannot_be_are_refused(fake: Fake) -> None:
    with pytest.raises(UsageError):
        Client(fake.url, heartbeat="ttl/4")
    with pytest.raises(UsageError):
        Client(fake.url, patience="soon")
    with Client(fake.url, heartbeat="ttl/6") as client, pytest.raises(UsageError):
        client.lock("a", ttl=-1).acquire()


def test_answer_of_something_else_is_no_answer(fake: Fake) -> None:
    fake.instead = lambda *_: (502, {"error": "bad gateway"})
    with Client(fake.url, patience=0.2) as client:
        with pytest.raises(Unreachable) as error:
            client.lock("a").acquire()
        assert error.value.outcome == "unknown"


def test_end_of_a_program_gives_back_what_it_holds(fake: Fake) -> None:
    program = f"from leasehold import Client; lease = Client('{fake.url}').lock('a').acquire(); print(lease.fencing_token)"
    source = str(Path(__file__).resolve().parents[1] / "src")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"
    assert not fake.held


def test_client_that_is_dropped_gives_back_what_it_holds(fake: Fake) -> None:
    client = Client(fake.url)
    with client.lock("a"):
        assert any(one.name == "leasehold" for one in threading.enumerate())
    del client
    gc.collect()
    deadline = time.monotonic() + 5
    while any(one.name == "leasehold" for one in threading.enumerate()) and time.monotonic() < deadline:
        pass
    assert not any(one.name == "leasehold" for one in threading.enumerate())


def test_close_answers_everybody_who_waits(fake: Fake) -> None:
    client = Client(fake.url, patience=0.3)
    asked = threading.Event()
    silent = threading.Event()

    def never(method: str, path: str, body: Json) -> tuple[int, Json] | None:
        asked.set()
        silent.wait(10)
        return None

    client.connect()
    lease = client.lock("held").acquire()
    fake.instead = never
    came: list[str] = []

    def call(what: str) -> None:
        try:
            if what == "get":
                client.api.get("a")
            elif what == "watch":
                client.watch("a")
            elif what == "acquire":
                client.lock("a", wait=None).acquire()
            else:
                lease.release()
        except (Closed, Unreachable) as error:
            came.append(type(error).__name__)

    threads = [threading.Thread(target=call, args=(what,)) for what in ("get", "watch", "acquire", "release")]
    for thread in threads:
        thread.start()
    assert asked.wait(5)
    client.close()
    for thread in threads:
        thread.join(5)
    silent.set()
    assert len(came) == 4, came


def test_lease_under_a_session_leaves_nothing_with_it() -> None:
    clock = TestClock()
    session = Belief(clock)
    for _ in range(3):
        one, other = Belief(clock, session), Belief(clock, session)

        def callback() -> None:
            raise AssertionError("nothing was lost")

        one.when(State.JEOPARDY, callback)
        one.forget(callback)
        other.when(State.JEOPARDY, lambda: None)
        other.is_lost("released")
    assert session._callbacks == []
    under = Belief(clock, session)
    told: list[str] = []
    under.when(State.JEOPARDY, lambda: told.append("told"))
    session.in_jeopardy()
    session.is_lost("lapse")
    assert told == ["told"]
    assert under.state() is State.LOST
    assert under.error(State.LOST).by == "lapse"

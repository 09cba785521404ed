"""Where a token goes, how it is renewed, and which leaders are followed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold import AsyncClient, Client, LeaseLost, Refused, TestClock, UsageError
from leasehold._http import TOKEN_AGE_MAX, Access
from leasehold._names import is_loopback

from .fake import Fake, Json, problem

SECRET = "lk_1_geheim"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_token_goes_unencrypted_to_this_machine_alone(kind: type[Client] | type[AsyncClient], tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    for given in ({"token": SECRET}, {"token_file": file}):
        with pytest.raises(UsageError, match="unencrypted") as error:
            kind("http://127.0.0.1:1,http://10.0.0.2:1", **given)
        assert "geheim" not in str(error.value)
        kind("http://localhost:1,https://10.0.0.2:1", **given)
        kind("http://10.0.0.2:1", allow_cleartext_token=True, **given)
    kind("http://10.0.0.2:1")


def test_this_machine_is_told_from_what_only_looks_like_it() -> None:
    for here in ("127.0.0.1", "127.9.9.9", "[::1]", "LocalHost", "[::ffff:127.0.0.1]"):
        assert is_loopback(f"http://{here}:1"), here
    for elsewhere in ("10.0.0.1", "localhost.example", "127.0.0.1.example", "[::2]", "[::ffff:10.0.0.1]"):
        assert not is_loopback(f"http://{elsewhere}:1"), elsewhere


def test_environment_names_a_token_or_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake: Fake) -> None:
    file = tmp_path / "token"
    monkeypatch.setenv("LEASEHOLD_ADDR", fake.url)
    monkeypatch.setenv("LEASEHOLD_TOKEN_FILE", str(file))
    with pytest.raises(UsageError, match="cannot be read"):
        Client.from_env()
    file.write_text("")
    with pytest.raises(UsageError, match="cannot be used"):
        Client.from_env()
    file.write_text(f"{SECRET}\n")
    with Client.from_env() as client:
        client.lock("a").acquire().release()
    assert fake.seen[-1][2]["headers"]["Authorization"] == f"Bearer {SECRET}"
    monkeypatch.setenv("LEASEHOLD_TOKEN", "other")
    with pytest.raises(UsageError, match="not both"):
        Client.from_env()
    with Client.from_env(token="given") as client:
        client.lock("a").acquire().release()
    assert fake.seen[-1][2]["headers"]["Authorization"] == "Bearer given"
    monkeypatch.delenv("LEASEHOLD_TOKEN")
    monkeypatch.setenv("LEASEHOLD_ADDR", "http://10.0.0.2:1")
    with pytest.raises(UsageError, match="unencrypted"):
        Client.from_env()
    monkeypatch.setenv("LEASEHOLD_ALLOW_CLEARTEXT_TOKEN", "1")
    Client.from_env()
    with pytest.raises(UsageError, match="not both"):
        Client(fake.url, token=SECRET, token_file=file)


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline


def rotate(fake: Fake, good: str) -> None:
    """From now on only this token is known."""

    def door(method: str, path: str, body: Json) -> tuple[int, Json] | None:
        shown = fake.seen[-1][2]["headers"].get("Authorization")
        return None if shown == f"Bearer {good}" else (401, problem("unauthenticated"))

    fake.instead = door


def test_file_is_read_again_when_the_token_is_not_known_any_more(tmp_path: Path, fake: Fake, clock: TestClock) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    rotate(fake, "first")
    with Client(fake.url, token_file=file, clock=clock) as client:
        lease = client.lock("a", ttl=30).acquire()
        # Beside the old one, as whoever replaces a file safely does.
        new = tmp_path / "new"
        new.write_text("second\n")
        rotate(fake, "second")
        new.replace(file)
        clock.advance(11)
        wait_for(lambda: lease.time_left > 25)
        lease.check()
        lease.release()
        # Nobody has a better one: the answer is the server's.
        rotate(fake, "third")
        with pytest.raises(Refused) as refused:
            client.lock("b").acquire()
        assert refused.value.code == "unauthenticated"
        # A file that is gone for a moment is no reason to forget the token.
        file.unlink()
        rotate(fake, "second")
        client.lock("b").acquire().release()


def test_file_is_read_again_now_and_then(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    access = Access(["http://127.0.0.1:1"], token_file=file)
    file.write_text("second")
    assert access.token() == "first"
    access._token._read_at -= TOKEN_AGE_MAX
    assert access.token() == "second"
    file.write_text("no header\ncan carry it")
    assert not access.has_newer("second")


def test_watch_shows_the_new_token(tmp_path: Path, fake: Fake) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    with Client(fake.url, token_file=file) as client:
        client.lock("a").acquire().release()
        file.write_text("second")
        rotate(fake, "second")
        with pytest.raises(Refused, match="not_found"):
            # The fake has no events; what counts is that it was asked with the new token.
            client.watch("a")
    shown = [body["headers"]["Authorization"] for _, path, body in fake.seen if path == "/v1/watch"]
    assert shown[-1] == "Bearer second"


def test_leader_is_followed_to_a_server_that_was_named_alone() -> None:
    access = Access(["http://a:1", "http://b:1"])
    assert access.leader("http://a:1", "http://b:1/") == "http://b:1"
    assert access.leader("http://a:1", "b:1") == "http://b:1"
    for elsewhere in (None, "http://c:1", "c:1", "https://b:1", "", "http://b:1@c:1", "b:1/x"):
        assert access.leader("http://a:1", elsewhere) is None, elsewhere


def test_leader_that_was_not_named_is_followed_if_a_trusted_authority_has_signed_it(authority: Path) -> None:
    pinned = Access(["https://a:1", "http://b:1"], cacert=str(authority))
    assert pinned.leader("https://a:1", "c:1") == "https://c:1"
    assert pinned.leader("https://a:1", "http://b:1") is None
    assert pinned.leader("http://b:1", "https://c:1") is None
    assert pinned.leader("http://b:1", "https://a:1") == "https://a:1"
    assert Access(["https://a:1"]).leader("https://a:1", "https://c:1") is None


def test_token_is_shown_to_servers_alone(fake: Fake) -> None:
    with Client(fake.url, token=SECRET) as client:
        lease = client.lock("a").acquire()
        lock = client.lock("b")
        for shown in (client, lease, lock, lock._spec, client.api):
            assert "geheim" not in repr(shown)
        with pytest.raises(LeaseLost) as lost:
            fake.held.clear()
            lease.release()
        assert "geheim" not in repr(lost.value)
    gc.collect()

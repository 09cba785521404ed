"""Names, durations, codes and errors are those of the server."""

from __future__ import annotations

import pytest

from leasehold import Deadlock, Held, LeaseholdError, Refused, StaleFence, Unreachable, UsageError
from leasehold._calls import read
from leasehold._codes import DENIED, RETRYABLE, says_nothing_of_the_lease, says_nothing_of_the_lock
from leasehold._duration import nanos, parse
from leasehold._http import Answered
from leasehold._names import byte_range, parse_servers, path_part, subtree

from . import vectors

KINDS = {"held": Held, "deadlock": Deadlock, "stale_fence": StaleFence, "refused": Refused, "unreachable": Unreachable}


@pytest.mark.parametrize("row", vectors.table("names"), ids=lambda row: repr(row["name"]))
def test_name_stands_in_a_path_as_the_server_reads_it(row: vectors.Line) -> None:
    assert path_part(row["name"]) == row["path"]


def test_helpers_write_canonical_texts() -> None:
    canonical = {row["canonical"] for row in vectors.table("names")}
    assert {subtree("/srv/a"), byte_range(42, 100, 200), byte_range(42, 100), byte_range(42)} <= canonical


@pytest.mark.parametrize("row", vectors.table("durations"), ids=lambda row: repr(row["text"]))
def test_duration_is_read_as_the_server_reads_it(row: vectors.Line) -> None:
    wanted = None if row["nanos"] is None else int(row["nanos"])
    assert parse(row["text"]) == wanted


def test_duration_is_seconds_text_or_a_timedelta() -> None:
    from datetime import timedelta

    assert nanos(1.5) == nanos("1500ms") == nanos(timedelta(milliseconds=1500)) == 1_500_000_000
    for wrong in (-1, float("nan"), float("inf"), "soon", True):
        with pytest.raises(UsageError):
            nanos(wrong)


@pytest.mark.parametrize("row", vectors.table("codes"), ids=lambda row: str(row["code"]))
def test_code_means_what_the_server_means_by_it(row: vectors.Line) -> None:
    code = row["code"]
    assert (code in RETRYABLE) == row["retryable"]
    assert says_nothing_of_the_lock(code) == row["says_nothing_of_the_lock"]
    assert says_nothing_of_the_lease(code) == row["says_nothing_of_the_lease"]
    assert (code in DENIED) == row["is_denied"]


@pytest.mark.parametrize("row", vectors.table("problems"), ids=lambda row: f"{row['status']} {row['error']['code']}")
def test_body_is_the_error_that_it_should_be(row: vectors.Line) -> None:
    with pytest.raises(LeaseholdError) as raised:
        read(Answered(row["status"], row["body"].encode()))
    error, wanted = raised.value, row["error"]
    assert type(error) is KINDS[wanted["kind"]]
    assert (error.code, error.outcome, error.reason) == (wanted["code"], wanted["outcome"], wanted["reason"])
    if isinstance(error, Refused):
        after = None if wanted["retry_after_ms"] is None else wanted["retry_after_ms"] / 1000
        assert error.retry_after == after
    if isinstance(error, Held):
        assert error.holders[0].owner_id == "worker-1"
        assert error.holders[0].metadata == {"value": "10.0.0.7:9000"}
        assert (error.waiters, error.ticket) == (2, "t-1")
    if isinstance(error, Deadlock):
        assert [(one.waiter, one.lock, one.blocker) for one in error.cycle] == [("a", "x", "b"), ("b", "y", "a")]
    if isinstance(error, StaleFence):
        assert error.high_water == 41


def test_servers_are_read_one_or_several() -> None:
    assert parse_servers("http://127.0.0.1:8080") == ["http://127.0.0.1:8080"]
    assert parse_servers("a:1, http://b:2/,[::1]:3") == ["http://a:1", "http://b:2", "http://[::1]:3"]
    assert parse_servers("https://a, https://b:2") == ["https://a:443", "https://b:2"]
    for wrong in ("", " , ", "ftp://a:1", "http://a:1/x", "http://", "http://a b:1", "http://u@a:1", "http://a:x"):
        with pytest.raises(UsageError):
            parse_servers(wrong)

"""The machine does what that of the Rust SDK does, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._machine import (
    Answer,
    Ask,
    Cancel,
    Connect,
    End,
    Failure,
    Granted,
    Jitter,
    Key,
    Machine,
    Refusal,
    Released,
    Renewed,
    Send,
    Settings,
    Tell,
    Wait,
)
from leasehold.errors import Problem

from . import vectors

MS = 1_000_000
VECTORS = vectors.machine()


def ms(nanos: int | None) -> int | None:
    if nanos is None:
        return None
    assert nanos % MS == 0, f"{nanos} ns are no whole milliseconds"
    return nanos // MS


def problem(said: vectors.Line) -> Problem:
    return Problem(said["code"], "", said["outcome"], fields=said)


class Player:
    """Plays a vector to the machine, and says what came of each step."""

    def __init__(self, header: vectors.Line) -> None:
        lengths = header["settings"]
        part = {"ttl/3": 3, "ttl/6": 6}[lengths["heartbeat"]]
        names = ("patience", "answer_timeout", "connect_timeout", "backoff_first", "backoff_max")
        given = {name: lengths[f"{name}_ms"] * MS for name in names}
        self.settings = Settings(heartbeat_part=part, **given)
        self.header = header
        self.machine: Machine
        self.keys: dict[str, Key] = {}
        self.names: dict[Key, str] = {}
        self.calls: list[Key] = []
        self.standing: vectors.Line = {}

    def play(self, step: vectors.Line) -> vectors.Line:
        returned = self.put_in(step["at"] * MS, step)
        out = []
        while (action := self.machine.next_action()) is not None:
            out.append(self.said(action))
        came: vectors.Line = {"out": out}
        if returned is not None:
            came["returns"] = returned
        standing = self.all_standing()
        if standing != self.standing:
            came["standing"] = self.standing = standing
        return came

    def put_in(self, now: int, step: vectors.Line) -> bool | None:
        if "do" in step:
            [(deed, how)] = step["do"].items()
            return self.do(now, deed, how)
        machine = self.machine
        if "hear" in step:
            self.hear(now, step["hear"])
        elif "fail" in step:
            machine.failed(now, self.calls[step["fail"]["call"] - 1], Failure(step["fail"]["how"]))
        elif "up" in step:
            machine.up(now, step["up"]["link"])
        elif "down" in step:
            machine.down(now, step["down"]["link"])
        else:
            assert step["wake"]
            machine.wake(now)
        return None

    def do(self, now: int, deed: str, how: Any) -> bool | None:
        if deed == "start":
            self.machine = Machine(now, self.header["servers"], self.settings, Jitter(self.header["jitter"]))
            return None
        machine = self.machine
        if deed == "acquire":
            wait = Wait(None if how["wait_ms"] is None else how["wait_ms"] * MS)
            session = self.keys[how["session"]] if "session" in how else None
            ask = Ask(how["ttl_ms"] * MS, wait, how["kept"], session)
            self.keys[how["key"]] = key = machine.acquire(now, how["key"], ask)
            self.names[key] = how["key"]
        elif deed == "release":
            return machine.release(now, self.keys[how["key"]])
        elif deed == "renew":
            return machine.renew(now, self.keys[how["key"]])
        elif deed == "abandon":
            machine.abandon(now, self.keys[how["key"]])
        elif deed == "start_heartbeat":
            machine.start_heartbeat(now, self.keys[how["key"]])
        elif deed == "suspect":
            machine.suspect(now)
        else:
            assert deed == "suspect_if_idle"
            machine.suspect_if_idle(now)
        return None

    def hear(self, now: int, heard: vectors.Line) -> None:
        if "lost" in heard:
            self.machine.lost(now, self.keys[heard["key"]], problem(heard["lost"]))
            return
        answer: Answer
        if "granted" in heard:
            answer = Granted(heard["granted"]["ttl_ms"] * MS, heard["granted"]["left_ms"] * MS)
        elif "renewed" in heard:
            answer = Renewed(heard["renewed"]["ttl_ms"] * MS, heard["renewed"]["left_ms"] * MS)
        elif "refused" in heard:
            answer = Refusal(problem(heard["refused"]))
        else:
            assert heard["released"]
            answer = Released()
        self.machine.answer(now, self.calls[heard["call"] - 1], answer)

    def name(self, key: Key) -> str:
        # What has ended in the same step is still spoken of.
        return self.names.setdefault(key, self.machine.data(key))

    def said(self, action: Any) -> vectors.Line:
        if isinstance(action, Connect):
            return {"connect": {"link": action.link, "address": action.address}}
        if isinstance(action, Send):
            self.calls.append(action.call)
            send: vectors.Line = {"call": len(self.calls), "key": self.name(action.key)}
            send["request"] = action.request.kind
            if action.request.kind == "acquire":
                send["wait_ms"] = ms(action.request.wait.length)
                if action.request.ticket is not None:
                    send["ticket"] = action.request.ticket
            return {"send": send}
        if isinstance(action, Cancel):
            return {"cancel": {"call": self.calls.index(action.call) + 1, "key": self.name(action.key)}}
        if isinstance(action, Tell):
            return {"tell": {"key": self.name(action.key), "news": action.news.value}}
        assert isinstance(action, End)
        end: vectors.Line = {"key": action.data, "how": action.how.kind}
        if action.how.loss is not None:
            end["by"] = action.how.loss.value
        if action.how.problem is not None:
            end["code"], end["outcome"] = action.how.problem.code, action.how.problem.outcome
        return {"end": end}

    def all_standing(self) -> vectors.Line:
        found = {}
        for name, key in self.keys.items():
            standing = self.machine.standing(key)
            if standing is not None:
                found[name] = {
                    "since": ms(standing.since),
                    "jeopardy_at": ms(standing.jeopardy_at),
                    "lapses_at": ms(standing.lapses_at),
                }
        return found


@pytest.mark.parametrize("name", VECTORS)
def test_machine_does_what_the_vector_says(name: str) -> None:
    header, *steps = VECTORS[name]
    player = Player(header)
    for number, step in enumerate(steps, 2):
        came = player.play(step)
        wanted = {what: step[what] for what in ("out", "returns", "standing") if what in step}
        assert came == wanted, f"{name}, line {number}: {step}"
        wake = player.machine.next_wake()
        if step["next"] is not None:
            # It may ask to be woken earlier, never later.
            assert wake is not None and wake <= step["next"] * MS, f"{name}, line {number}"


def test_there_are_vectors() -> None:
    assert len(VECTORS) > 250

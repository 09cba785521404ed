"""Durations: seconds as numbers, ``timedelta``, or text such as ``30s``, ``1m30s``, ``1.5h``, ``1500ms``.

Text is read as the server reads it; held to ``sdk/vectors/durations.jsonl``.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Union

from .errors import UsageError

Duration = Union[float, str, timedelta]

_UNITS = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1000,
    "\u00b5s": 1000,
    "\u03bcs": 1000,
    "ns": 1,
}
_NUMBER = r"(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))"
_BARE = re.compile(_NUMBER)
_PART = re.compile(_NUMBER + "(" + "|".join(sorted(_UNITS, key=len, reverse=True)) + ")")
_SECONDS_MAX = 2**64 - 1


def nanos(length: Duration, what: str = "duration") -> int:
    """The length in nanoseconds; ``UsageError`` if it is none."""
    if isinstance(length, timedelta):
        length = length.total_seconds()
    if isinstance(length, str):
        found = parse(length)
        if found is None:
            raise UsageError(f"{what}: {length!r} is not a duration: write 30s, 1m30s, 1500ms, or a number of seconds")
        return found
    if isinstance(length, bool) or not isinstance(length, (int, float)):
        raise UsageError(f"{what}: {length!r} is not a duration")
    if not math.isfinite(length) or length < 0 or length > _SECONDS_MAX:
        raise UsageError(f"{what}: {length!r} is not a duration: it must be a number of seconds, not negative")
    return round(length * 1_000_000_000)


def parse(text: str) -> int | None:
    """The length in nanoseconds, or ``None`` if the text is none."""
    is_negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("+", "-") else text
    bare = _BARE.fullmatch(rest)
    total = 0
    if bare:
        total = _times(bare, _UNITS["s"])
    else:
        at = 0
        while at < len(rest):
            part = _PART.match(rest, at)
            if part is None:
                return None
            total += _times(part, _UNITS[part[4]])
            at = part.end()
        if not rest:
            return None
    if (is_negative and total > 0) or total // 1_000_000_000 > _SECONDS_MAX:
        return None
    return total


def _times(number: re.Match[str], unit: int) -> int:
    whole, fraction = number[1] or "0", (number[2] or number[3] or "")[:18]
    return int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)


def millis(length: int) -> int:
    """Rounded up: a wait or a ttl is never shorter than asked."""
    return -(-length // 1_000_000)

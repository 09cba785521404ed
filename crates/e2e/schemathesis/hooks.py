"""Bounds the calls that wait, so that thousands of them end in a minute. Nothing is left out."""

import schemathesis

WAIT_MS_MAX = 20
# What is beyond it must be refused, and goes out as it is.
WAIT_MS_LIMIT = 50_000


def is_long(wait):
    """Only a whole number is a wait; everything else is refused and goes out as it is."""
    if isinstance(wait, str) and wait.isascii() and wait.isdigit():
        wait = int(wait)
    return type(wait) is int and WAIT_MS_MAX < wait <= WAIT_MS_LIMIT


@schemathesis.hook
def before_call(context, case, kwargs):
    for values in (case.body, case.query):
        if isinstance(values, dict) and is_long(values.get("wait_ms")):
            values["wait_ms"] = int(values["wait_ms"]) % WAIT_MS_MAX

"""The server's codes, as far as the SDK decides by them. Held to ``sdk/vectors/codes.jsonl``."""

from __future__ import annotations

RETRYABLE = frozenset(
    {
        "lock_held",
        "reclaim_window",
        "request_timeout",
        "too_many_waiters",
        "session_limit",
        "quota_exceeded",
        "rate_limited",
        "grace_period",
        "store_unavailable",
        "not_leader",
        "draining",
        "overloaded",
        "audit_unavailable",
        "interrupted",
    }
)
"""The same request may well succeed a little later."""

_DECIDED = frozenset({"lock_held", "reclaim_window", "too_many_waiters", "session_limit", "quota_exceeded"})

LEASE_IS_OVER = frozenset({"not_holder", "lease_lost", "session_not_found"})
"""There is nothing left to release."""

HELD = frozenset({"lock_held", "reclaim_window"})
"""Somebody else is in the way."""


DENIED = frozenset({"unauthenticated", "permission_denied"})
"""The server does not let the caller in, who may have a better token soon: a lease stands all the same."""


def says_nothing_of_the_lock(code: str) -> bool:
    """Whether the refusal leaves open what was asked: it may be decided a little later, or elsewhere."""
    return code == "internal" or (code in RETRYABLE and code not in _DECIDED)


def says_nothing_of_the_lease(code: str) -> bool:
    """The same for what is held already: a server that has too much to do has not ended the lease."""
    return says_nothing_of_the_lock(code) or code == "quota_exceeded"

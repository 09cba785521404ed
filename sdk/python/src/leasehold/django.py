"""For Django: management commands that run in one process at a time.

::

    class Command(LockedCommand, BaseCommand):
        lock_ttl = 60

        def handle(self, *args, **options):
            for batch in batches:
                self.lease.check()
                ...

The lock is called ``django/`` and the module of the command. A command that runs elsewhere already is skipped, with a
line on its standard error; with ``on_held = "raise"`` it fails with ``Held``. This module imports nothing of Django.
"""

from __future__ import annotations

from typing import Any, Literal

from ._duration import Duration
from ._sync import Client, Lease
from .errors import Held

__all__ = ["LockedCommand"]


class LockedCommand:
    """A mixin for ``BaseCommand``, to be named before it: the command runs under a lock."""

    lock_name: str | None = None
    """The lock; ``django/`` and the command's module if it is not set."""
    lock_ttl: Duration = 60
    lock_wait: Duration | None = 0
    on_held: Literal["raise", "skip"] = "skip"
    lease: Lease
    """While the command runs."""

    def lock_client(self) -> Client:
        """A client for one run of the command, which is closed after it: as the environment says."""
        return Client.from_env()

    def execute(self, *args: Any, **options: Any) -> Any:
        """Runs the command under its lock, as Django runs it without."""
        name = self.lock_name or f"django/{type(self).__module__}"
        with self.lock_client() as client:
            try:
                self.lease = client.lock(name, ttl=self.lock_ttl, wait=self.lock_wait).acquire()
            except Held as held:
                if self.on_held == "raise":
                    raise
                owners = ", ".join(holder.owner_id for holder in held.holders)
                self.stderr.write(f"{name} runs already: {owners}")  # type: ignore[attr-defined]
                return None
            with self.lease:
                return super().execute(*args, **options)  # type: ignore[misc]

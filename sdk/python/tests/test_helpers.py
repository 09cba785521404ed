"""Helpers for Celery and APScheduler, with the real ones."""

from __future__ import annotations

import io
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from leasehold import Client, Held, Lease, TestClock
from leasehold.apscheduler import locked_job
from leasehold.celery import BeatLock, singleton
from leasehold.django import LockedCommand

from .fake import Fake


def test_job_of_celery_runs_once_at_a_time_for_its_arguments(client: Client, fake: Fake) -> None:
    celery = pytest.importorskip("celery")
    app = celery.Celery("test", broker="memory://", backend="cache+memory://")
    app.conf.task_always_eager = True
    ran: list[tuple[int, int]] = []

    def report(self: Any, customer: int, lease: Lease) -> int:
        ran.append((customer, lease.fencing_token))
        nested = task.apply(args=[customer]).get()
        assert nested is None, "the same one twice at a time"
        return customer

    task = app.task(bind=True)(singleton(client)(report))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert task.apply(args=[7]).get() == 7
        assert task.apply(args=[8]).get() == 8
    assert [customer for customer, _ in ran] == [7, 8]
    assert not fake.held
    assert any("celery/" in path and "[[7],{}]" in path for _, path, _ in fake.seen)


def test_lock_of_a_job_can_be_named(client: Client, fake: Fake) -> None:
    @singleton(client, name=lambda customer: f"report/{customer}")
    def report(customer: int) -> int:
        assert f"report/{customer}" in fake.held
        return customer

    assert report(3) == 3


def test_beat_is_stopped_in_jeopardy(client: Client, clock: TestClock, fake: Fake) -> None:
    stopped = threading.Event()
    fake.instead = lambda method, path, body: (503, {}) if path.endswith("/renew") else None
    with BeatLock(client, stop=stopped.set, ttl=30) as lease:
        assert lease.is_valid
        clock.advance(15)
        assert stopped.wait(5)
        assert not lease.is_valid


def test_beat_of_celery_ends_in_jeopardy(client: Client, clock: TestClock, fake: Fake, tmp_path: Path) -> None:
    celery, beat = pytest.importorskip("celery"), pytest.importorskip("celery.beat")
    app = celery.Celery("test", broker="memory://", backend="cache+memory://")
    service = beat.Service(app, max_interval=0.01, schedule_filename=str(tmp_path / "schedule"))
    with BeatLock(client, stop=service.stop, ttl=30):
        running = threading.Thread(target=service.start, kwargs={"embedded_process": True})
        running.start()
        running.join(0.05)
        assert running.is_alive()
        fake.instead = lambda method, path, body: (503, {}) if path.endswith("/renew") else None
        clock.advance(15)
        running.join(5)
        assert not running.is_alive()


def test_command_of_django_runs_in_one_process_at_a_time(fake: Fake, clock: TestClock) -> None:
    django, conf = pytest.importorskip("django"), pytest.importorskip("django.conf")
    management = pytest.importorskip("django.core.management")
    conf.settings.configure()
    django.setup()

    class Command(LockedCommand, management.BaseCommand):  # type: ignore[misc, name-defined]
        lock_name = "nightly"

        def lock_client(self) -> Client:
            return Client(fake.url, clock=clock)

        def handle(self, *args: Any, **options: Any) -> str:
            self.lease.check()
            assert "nightly" in fake.held
            return f"ran with token {self.lease.fencing_token}"

    out, err = io.StringIO(), io.StringIO()
    management.call_command(Command(stdout=out, stderr=err))
    assert out.getvalue() == "ran with token 1\n"
    with Client(fake.url) as other, other.lock("nightly", owner="other"):
        management.call_command(Command(stdout=out, stderr=err))
        assert "nightly runs already" in err.getvalue()
        command = Command(stdout=out, stderr=err)
        command.on_held = "raise"
        with pytest.raises(Held):
            management.call_command(command)
    assert out.getvalue() == "ran with token 1\n"
    assert not fake.held


def test_job_of_apscheduler_is_skipped_where_another_runs_it(client: Client) -> None:
    schedulers = pytest.importorskip("apscheduler.schedulers.background")
    ran = threading.Event()

    def nightly(what: str, lease: Lease) -> str:
        assert lease.is_valid
        ran.set()
        return what

    job = locked_job(client, "nightly", nightly)
    scheduler = schedulers.BackgroundScheduler(timezone="UTC")
    scheduler.start()
    scheduler.add_job(job, args=["done"])
    assert ran.wait(10)
    scheduler.shutdown()
    with client.lock("nightly", owner="other"):
        assert job("again") is None
    assert job("again") == "again"

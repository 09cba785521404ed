"""What tests have at hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasehold import Client, TestClock

from .fake import Fake


@pytest.fixture
def fake() -> Iterator[Fake]:
    fake = Fake()
    yield fake
    fake.stop()


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def client(fake: Fake, clock: TestClock) -> Iterator[Client]:
    with Client(fake.url, clock=clock, patience=2) as client:
        yield client

"""What tests have at hand."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of an authority that has signed nothing."""
    folder = tmp_path_factory.mktemp("authority")
    ask = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=nobody"
    files = "-keyout key.pem -out cert.pem"
    subprocess.run(["openssl", *ask.split(), *files.split()], cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"

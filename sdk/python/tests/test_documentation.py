"""Every public name says what it is."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import leasehold
import leasehold.apscheduler
import leasehold.celery
import leasehold.django

MODULES = (leasehold, leasehold.apscheduler, leasehold.celery, leasehold.django)
NAMES = [(module, name) for module in MODULES for name in module.__all__]


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda one: getattr(one, "__name__", one))
def test_name_is_documented(module: Any, name: str) -> None:
    thing = getattr(module, name)
    if not inspect.isclass(thing) and not inspect.isfunction(thing):
        return
    assert inspect.getdoc(thing), name
    for member, value in vars(thing).items():
        is_code = isinstance(value, (property, classmethod, staticmethod)) or inspect.isfunction(value)
        if is_code and not member.startswith("_"):
            assert inspect.getdoc(getattr(thing, member)), f"{name}.{member}"

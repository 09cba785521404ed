"""Reads the files that say what every SDK must do alike."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Line = dict[str, Any]

FOLDER = Path(os.environ.get("LEASEHOLD_VECTORS") or Path(__file__).resolve().parents[2] / "vectors")


def table(name: str) -> list[Line]:
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def machine() -> dict[str, list[Line]]:
    """All vectors of the machine, by name; the first line of each is its header."""
    found: dict[str, list[Line]] = {}
    for file in sorted((FOLDER / "machine").glob("*.jsonl")):
        current: list[Line] = []
        for text in file.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if "vector" in line:
                current = found.setdefault(line["vector"], [])
            current.append(line)
    return found

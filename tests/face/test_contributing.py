"""What CONTRIBUTING.md names is there: files, folders, tests that can be collected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED = sorted(
    set(re.findall(r"`((?:engine|theory|profiling|paper_repro|tileq|tests|docs|tools)/[\w./]*)`", TEXT))
    | set(re.findall(r"(?:python|pytest)(?: -m \w+)? ((?:tests|docs)/[\w./]+)", TEXT))
)


def test_paths_are_found_in_the_text() -> None:
    assert len(NAMED) > 15
    assert "tests/engine/test_contract_battery.py" in NAMED and "docs/refresh.py" in NAMED


@pytest.mark.parametrize("name", NAMED)
def test_what_is_named_is_there(name: str) -> None:
    path = ROOT / name
    assert path.exists(), name
    if path.name.startswith("test_"):
        assert re.search(r"^def test_", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_every_extension_point_names_the_tests_it_must_pass() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| a") and "---" not in line]
    assert len(rows) >= 7
    assert all("`tests/" in row for row in rows)

"""Shared by all tests: array shapes and types are checked, and the real data is found or the test skips."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# the numeric tower: an int is a good float, as type checkers have it
CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
PACKAGES = ["tileq_theory", "tileq_engine", "tileq_profiling", "paper_repro"]

DATA_VARIABLE = "TILEQ_DATA"


# no deadline: the machine's speed is not what property tests test. A clean checkout in CI draws the same examples each
# time, so that a verdict speaks of the change; everywhere else they are new ones.
settings.register_profile("house", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "house")


def pytest_configure(config: pytest.Config) -> None:
    """Check array shapes and types in every test; not in benchmarks, which would time the checks."""
    if config.getoption("markexpr") != "bench":
        install_import_hook(PACKAGES, CHECKER)


def shared_data() -> Path | None:
    """Return the folder of real data: $TILEQ_DATA, or shared/data beside the project, if it is there."""
    named = os.environ.get(DATA_VARIABLE)
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of real data; the test is skipped, with the reason, where it is absent."""
    folder = shared_data()
    if folder is None:
        pytest.skip(f"real data not found: neither ${DATA_VARIABLE} nor ../shared/data is a folder")
    return folder

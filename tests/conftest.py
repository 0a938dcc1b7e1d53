"""Shared by all tests: array shapes and types are checked, and the real data is found or the test skips."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# the numeric tower: an int is a good float, as type checkers have it
CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
install_import_hook(["tileq_theory", "tileq_engine", "tileq_profiling"], CHECKER)

DATA_VARIABLE = "TILEQ_DATA"


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

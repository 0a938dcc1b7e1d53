"""Tests of the decoder: skipped, with the reason, where torch is not installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    """Skip where torch, or what the module's NEEDS names beside it, is not installed."""
    for name in ("torch", *getattr(request.module, "NEEDS", ())):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed (pip install torch==2.13.0 transformers)")

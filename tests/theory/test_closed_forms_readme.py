"""The map theory/README.md names only what exists, and every closed form."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from tileq_theory.closed_forms import closed_forms

README = (Path(__file__).parents[2] / "theory" / "README.md").read_text(encoding="utf-8")


def test_every_function_named_exists() -> None:
    named = re.findall(r"`((?:tileq_theory\.)?(?:closed_forms\.)?[a-z_.]+)\.([A-Za-z_]+)`", README)
    assert len(named) > 20
    for path, function in named:
        module = importlib.import_module(path if path.startswith("tileq_theory") else f"tileq_theory.{path}")
        if not hasattr(module, function):
            importlib.import_module(f"{module.__name__}.{function}")


def test_every_closed_form_is_on_the_map() -> None:
    assert set(closed_forms()) <= set(re.findall(r"`([a-z_0-9]+)`", README))

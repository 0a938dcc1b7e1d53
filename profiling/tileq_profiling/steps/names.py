"""Names of devices and models as files write them, to the catalogue's, so that datasheets and shapes are found."""

from __future__ import annotations

__all__ = ["in_catalogue"]

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tileq_profiling.profile import Conditions
from tileq_theory.errors import InputError


def in_catalogue(conditions: Conditions) -> Conditions:
    """Return the conditions with device and model under the catalogue's names where it knows them, and a note of both.

    Examples
    --------
    >>> in_catalogue(Conditions(device="NVIDIA GeForce RTX 4090")).device
    'rtx-4090'
    """
    device, model = _device(conditions.device), _model(conditions.model)
    notes = [
        f"{what} {before!r} read as {after}"
        for what, before, after in (("device", conditions.device, device), ("model", conditions.model, model))
        if before != after
    ]
    if not notes:
        return conditions
    return replace(conditions, device=device, model=model, notes=(*conditions.notes, *notes))


@lru_cache(maxsize=64)
def _device(name: str) -> str:
    from tileq_theory.hardware import load_gpu

    try:
        return load_gpu(name).name if name else ""
    except InputError:
        return name


@lru_cache(maxsize=64)
def _model(name: str) -> str:
    from tileq_theory.hardware import load_model

    # a name out of a file is looked up, never opened
    if not name or name.startswith((".", "/", "~")) or Path(name).exists():
        return name
    try:
        return load_model(name).name
    except InputError:
        return name

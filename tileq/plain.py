"""Plain data: what a document may hold, so that `to_dict()` and the printed JSON are the same thing."""

from __future__ import annotations

__all__ = ["dumps", "plain"]

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Return `value` as nested dicts, lists, strings, numbers, booleans and None.

    Numbers that are not finite become None: JSON has no token for them, and a reader must not take one for a number.

    Examples
    --------
    >>> plain({"rate_per_s": np.float64(2.5), "limit": float("inf"), "tile": (np.int64(3), 1)})
    {'rate_per_s': 2.5, 'limit': None, 'tile': [3, 1]}
    """
    if value is None or isinstance(value, bool | str):
        return str(value.value) if isinstance(value, enum.Enum) else value
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return _plain_composite(value)


def _plain_composite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [plain(item) for item in items]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} is not plain data")


def dumps(document: Mapping[str, Any]) -> str:
    """Return the document as one JSON text; never NaN or Infinity, and ASCII for whatever reads it."""
    return json.dumps(plain(document), indent=2, allow_nan=False)

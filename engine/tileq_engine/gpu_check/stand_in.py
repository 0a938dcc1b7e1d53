"""A stand-in for jaxtyping where it is not installed: annotations say shapes, nothing checks them outside the tests."""

from __future__ import annotations

__all__ = ["provide_jaxtyping"]

import importlib.util
import sys
import types
from typing import Any


class _Annotation:
    def __class_getitem__(cls, item: Any) -> Any:
        return item[0] if isinstance(item, tuple) else item


class _Module(types.ModuleType):
    """Every kind of array, whatever its name, is the same annotation."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Annotation


def provide_jaxtyping() -> bool:
    """Put the stand-in in jaxtyping's place if that is not there; return whether it was needed."""
    if "jaxtyping" in sys.modules or importlib.util.find_spec("jaxtyping") is not None:
        return False
    sys.modules["jaxtyping"] = _Module("jaxtyping")
    return True

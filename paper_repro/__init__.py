"""The published results, one command each: data, figure and verdict of every item.

    import paper_repro

    answer = paper_repro.reproduce(["dai-batch-time"], smoke=True, folder="reproduced")
    answer.items[0].verdict

An item is one file (`paper_repro.registry` lists them): its settings, what it computes piece by piece, the rows that
hold what came out against what was published, and its figure. See `paper_repro/README.md`.
"""

from __future__ import annotations

__all__ = ["Item", "Reproduced", "item", "item_names", "reproduce"]

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paper_repro.framework.item import Item as Item
    from paper_repro.framework.run import Reproduced as Reproduced
    from paper_repro.framework.run import reproduce as reproduce
    from paper_repro.registry import item as item
    from paper_repro.registry import item_names as item_names

_HOMES = {
    "Item": "framework.item",
    "Reproduced": "framework.run",
    "item": "registry",
    "item_names": "registry",
    "reproduce": "framework.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'paper_repro' has no attribute {name!r}")
    return getattr(import_module(f"paper_repro.{_HOMES[name]}"), name)

"""All items by name: one line each."""

from __future__ import annotations

__all__ = ["item", "item_module", "item_names"]

from importlib import import_module

from paper_repro.framework.item import Item
from tileq_theory.errors import InputError, near_matches

_ITEMS = {
    "rad-staircase": "rad.staircase",
    "rad-stability": "rad.stability",
    "rad-ratio": "rad.ratio",
    "slai-fig5a": "slai.fig5a",
    "slai-fig5b": "slai.fig5b",
    "slai-fig5c": "slai.fig5c",
    "slai-evaluation": "slai.evaluation",
    "slai-headline": "slai.headline",
    "dai-batch-time": "dai.batch_time",
    "dai-throughput": "dai.throughput",
    "dai-load-table": "dai.load_table",
    "dai-traces": "dai.traces",
    "dai-slots": "dai.slots",
    "dai-rybko-stolyar": "dai.rybko_stolyar",
    "wait-saturation": "wait.saturation",
    "wait-long-decode": "wait.long_decode",
    "wait-fluid": "wait.fluid",
    "nie-table": "nie.table",
    "nie-paths": "nie.paths",
    "gate-and-route": "models.gate_and_route",
    "theta-threshold": "models.theta",
    "inoue-batching": "models.inoue",
    "yang-clipping": "models.yang",
    "mitzenmacher-shahout": "models.mitzenmacher",
    "slo-sizing": "models.sizing",
    "dong-flow-control": "models.dong",
    "svf-bursts": "models.svf",
    "anatomy-tpot": "anatomy.tpot",
    "anatomy-starvation": "anatomy.starvation",
    "anatomy-preemption": "anatomy.preemption",
    "anatomy-chunked": "anatomy.chunked",
    "anatomy-tiling": "anatomy.tiling",
}


def item_names() -> tuple[str, ...]:
    """Return the names of all items, in the report's order."""
    return tuple(_ITEMS)


def item_module(name: str) -> str:
    """Return the module of an item.

    Raises
    ------
    InputError
        For an unknown name; the message lists the nearest ones.
    """
    if name not in _ITEMS:
        raise InputError(f"unknown item {name!r}; {near_matches('items', name, _ITEMS)} (tileq reproduce --list)")
    return f"paper_repro.{_ITEMS[name]}"


def item(name: str) -> Item:
    """Return an item by name.

    Examples
    --------
    >>> item("dai-batch-time").paper
    'Dai et al., arXiv 2504.07347'
    """
    found: Item = import_module(item_module(name)).ITEM
    if found.name != name:
        raise InputError(f"{item_module(name)} calls itself {found.name!r}; the registry says {name!r}")
    return found

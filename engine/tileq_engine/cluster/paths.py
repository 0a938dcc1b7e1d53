"""Paths of a cluster in time: the nodes' samples, each a step function, summed on one grid."""

from __future__ import annotations

__all__ = ["cluster_samples", "last_place", "on_grid"]

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from tileq_engine.simulator_result import IterationSamples

if TYPE_CHECKING:
    from tileq_engine.cluster.result import ClusterRun

_POINTS = 4096
_STATE = ("waiting", "running", "kv_blocks_used", "work_tokens", "prefix_idle_blocks")
_BATCH = ("prefill_tokens", "decode_tokens", "sequences")
_TOTALS = ("served_prefill_tokens", "served_decode_tokens", "prefix_lookup_tokens", "prefix_hit_tokens")


def last_place(samples: IterationSamples, at: Int[np.ndarray, "point"]) -> Int[np.ndarray, "point"]:
    """Return the place of the latest sample at each instant; -1 before the first."""
    place: Int[np.ndarray, "point"] = np.searchsorted(samples.start_ps, at, side="right") - 1
    return place


def on_grid(samples: IterationSamples, name: str, at: Int[np.ndarray, "point"]) -> Int[np.ndarray, "point"]:
    """Return the value of the latest sample at each instant; 0 before the first, and after the last once that ended.

    (Totals served keep their last value, and so do blocks that a cache holds: nobody takes them while nothing runs.)
    """
    if not len(samples.start_ps):
        return np.zeros(len(at), dtype=np.int64)
    place = last_place(samples, at)
    values = np.asarray(getattr(samples, name))[np.maximum(place, 0)]
    values = np.where(place < 0, 0, values)
    if name not in (*_TOTALS, "prefix_idle_blocks") and samples.stride == 1:
        over = samples.start_ps + samples.duration_ps
        values = np.where(at >= over[np.maximum(place, 0)], 0, values)
    return values.astype(np.int64)


def cluster_samples(run: ClusterRun) -> IterationSamples:
    """Return the samples of the whole cluster: sums over the nodes on an even grid from 0 to the end.

    Of one node they are its own.
    """
    if len(run.nodes) == 1:
        return run.nodes[0].samples
    most = max((len(node.samples.start_ps) for node in run.nodes), default=0)
    points = min(_POINTS, max(most, 1))
    at = np.unique(np.linspace(0, run.end_ps, points + 1)[:-1].astype(np.int64))
    step = np.diff(at, append=run.end_ps)
    sums: dict[str, Any] = {
        name: sum((on_grid(node.samples, name, at) for node in run.nodes), start=np.zeros(len(at), dtype=np.int64))
        for name in (*_STATE, *_BATCH, *_TOTALS)
    }
    return IterationSamples(
        stride=1, iteration=np.arange(len(at), dtype=np.int64), start_ps=at, duration_ps=step, **sums
    )

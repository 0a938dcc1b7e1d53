"""A cluster's run seen as one engine's: what is added up over the nodes, and what is a mean over them.

Of a cluster of one node everything is that node's own, to the bit. Of more, memory, budget and slots are the sums of
the nodes'; a batch is an iteration of one node, so batches are pooled over the nodes and not added up in time; the busy
share is the nodes' mean; peaks are those of the sums, as far as the samples' grid tells, and at least a node's own.
"""

from __future__ import annotations

__all__ = ["as_one", "pooled_batches", "summed_tenants"]

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from tileq_engine.cluster.paths import last_place
from tileq_engine.observed import TenantRecord
from tileq_engine.run import PS_PER_S, Run

if TYPE_CHECKING:
    from tileq_engine.cluster.result import ClusterRun
    from tileq_engine.metrics_window import MeasureWindow

_PEAKS = {"peak_kv_blocks": "kv_blocks_used", "peak_running": "running", "peak_waiting": "waiting"}


def as_one(cluster_run: ClusterRun, run: Run) -> Run:
    """Return the run of the whole cluster with the memory, budget, slots and peaks of all its nodes."""
    nodes = cluster_run.nodes
    if len(nodes) == 1:
        return replace(run, tenants=nodes[0].tenants, bottlenecks=nodes[0].bottlenecks)
    configs = [node.node.config for node in nodes]
    blocks = [config.kv_blocks for config in configs]
    facts: dict[str, Any] = {
        "kv_blocks_total": 0 if any(config.kv_tokens is None for config in configs) else sum(blocks),
        "token_budget": sum(config.token_budget for config in configs),
        "max_sequences": sum(config.max_num_seqs for config in configs),
    }
    counters = {**run.counters, "nodes": len(nodes)}
    for peak, column in _PEAKS.items():
        values = run.samples[column]
        counters[peak] = max(counters.get(peak, 0), int(values.max()) if values.size else 0)
    tenants = summed_tenants(cluster_run, run.samples["start_ps"])
    return replace(run, info=replace(run.info, **facts), counters=counters, tenants=tenants)


def pooled_batches(cluster_run: ClusterRun, window: MeasureWindow) -> dict[str, float | int | None]:
    """Return the means over the iterations of all nodes inside the window, every sample for those it stands for."""
    weights: list[Any] = []
    columns: dict[str, list[Any]] = {name: [] for name in _BATCH}
    for node in cluster_run.nodes:
        start = node.samples.start_ps
        inside = (start >= window.start_ps) & (start <= window.end_ps)
        weights.append(np.full(int(inside.sum()), float(node.samples.stride)))
        for name, kept in columns.items():
            kept.append(np.asarray(getattr(node.samples, name))[inside].astype(float))
    weight = np.concatenate(weights)

    def mean(name: str) -> float | None:
        return float(np.average(np.concatenate(columns[name]), weights=weight)) if weight.size else None

    duration = mean("duration_ps")
    return {
        "mean_prefill_tokens": mean("prefill_tokens"),
        "mean_decode_tokens": mean("decode_tokens"),
        "mean_sequences": mean("sequences"),
        "mean_duration_s": None if duration is None else duration / PS_PER_S,
        "iterations": cluster_run.counters["iterations"],
    }


_BATCH = ("prefill_tokens", "decode_tokens", "sequences", "duration_ps")


def summed_tenants(cluster_run: ClusterRun, at: Int[np.ndarray, "sample"]) -> TenantRecord | None:
    """Return the tenants' accounts added up over the nodes at the instants `at`; None where a node keeps none.

    Starvation is the longest on any node: each node divides what it has by itself.
    """
    records = [node.tenants for node in cluster_run.nodes]
    kept = [record for record in records if record is not None]
    if len(kept) < len(records):
        return None
    sampled: dict[str, Any] = {}
    for name in ("prefilled_tokens", "delivered_tokens", "present", "waiting", "counter"):
        total = np.zeros((len(at), len(kept[0].names)), dtype=np.int64)
        for node, record in zip(cluster_run.nodes, kept, strict=True):
            place = last_place(node.samples, at)
            values = getattr(record, name)
            if len(values):
                total += np.where((place >= 0)[:, None], values[np.maximum(place, 0)], 0)
        sampled[name] = total
    summed: dict[str, Any] = {
        name: np.sum([getattr(record, name) for record in kept], axis=0)
        for name in ("end_prefilled_tokens", "end_delivered_tokens", "end_counter")
    }
    longest = np.argmax([record.starved_ps for record in kept], axis=0)
    starved: dict[str, Any] = {
        name: np.array([getattr(kept[k], name)[t] for t, k in enumerate(longest.tolist())], dtype=np.int64)
        for name in ("starved_ps", "starved_from_ps")
    }
    return replace(kept[0], **sampled, **summed, **starved)

"""Why requests waited in a cluster, where, and since when: the nodes' own causes, and KV on its way between pools."""

from __future__ import annotations

__all__ = ["cluster_bottlenecks"]

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from tileq_engine.pressure import CAUSES
from tileq_engine.run import PS_PER_S

if TYPE_CHECKING:
    from tileq_engine.cluster.result import ClusterRun

_Moments = Int[np.ndarray, "interval"]


def cluster_bottlenecks(run: ClusterRun) -> list[dict[str, Any]]:
    """Return a row for each group of nodes and cause, the longest first; empty where no node watched.

    `where` is the name of the group, `cause` one of `pressure.CAUSES`, `share` of its nodes' time. The cause
    "transfer" of "link" are requests handed over whose KV waits for a port, or for room in the decode pool; its time
    counts once, however many wait. `first_s`, `longest` and `most_waiting` are of a single node.
    """
    rows: list[dict[str, Any]] = []
    groups: dict[str, list[Any]] = {}
    for node in run.nodes:
        groups.setdefault(_group(run, node.name), []).append(node)
    for name, nodes in groups.items():
        for cause in range(1, len(CAUSES)):
            row = _cause(nodes, cause, run.end_ps)
            if row:
                rows.append({"where": name, "cause": CAUSES[cause], **row})
    if any(node.bottlenecks is not None for node in run.nodes):
        rows += _link(run)
    return sorted(rows, key=lambda row: -row["seconds"])


def _group(run: ClusterRun, name: str) -> str:
    """Return the name under which the cluster's file has a replica."""
    own = next((n.name for n in run.cluster.nodes if n.name == name), None)
    return own or name.rpartition("-")[0] or name


def _cause(nodes: list[Any], cause: int, end_ps: int) -> dict[str, Any] | None:
    begins, ends, waits, whose = [], [], [], []
    for node in nodes:
        if node.bottlenecks is None:
            continue
        mine = node.bottlenecks.cause == cause
        begins.append(node.bottlenecks.begin_ps[mine])
        ends.append(node.bottlenecks.end_ps[mine])
        waits.append(node.bottlenecks.waiting[mine])
        whose += [node.name] * int(mine.sum())
    if not whose:
        return None
    return _row(np.concatenate(begins), np.concatenate(ends), np.concatenate(waits), whose, len(nodes) * end_ps)


def _row(begin: _Moments, end: _Moments, waiting: _Moments, whose: list[str], time_ps: int) -> dict[str, Any]:
    length = end - begin
    longest, total = int(np.argmax(length)), int(length.sum())
    return {
        "seconds": total / PS_PER_S,
        "share": total / time_ps if time_ps > 0 else None,
        "intervals": len(whose),
        "first_s": int(begin.min()) / PS_PER_S,
        "longest": {
            "node": whose[longest],
            "begin_s": int(begin[longest]) / PS_PER_S,
            "end_s": int(end[longest]) / PS_PER_S,
            "waiting": int(waiting[longest]),
        },
        "most_waiting": int(waiting.max()),
    }


def _link(run: ClusterRun) -> list[dict[str, Any]]:
    """Return the row of the link, where a transfer did not begin at once."""
    moved = run.transfers
    late = moved.start_ps > moved.ready_ps
    if not late.any():
        return []
    at = np.concatenate([moved.ready_ps[late], moved.start_ps[late]])
    steps = np.repeat(np.array([1, -1], dtype=np.int64), int(late.sum()))
    order = np.lexsort((-steps, at))  # at one moment join first, then leave: intervals that touch are one
    at, level = at[order], np.cumsum(steps[order])
    ends = np.flatnonzero(level == 0)
    begins = np.concatenate([[0], ends[:-1] + 1])
    most = np.maximum.reduceat(level, begins)
    return [
        {"where": "link", "cause": "transfer", **_row(at[begins], at[ends], most, ["link"] * len(ends), run.end_ps)}
    ]

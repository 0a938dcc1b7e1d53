"""What kept requests waiting in a run: for how long each cause did, when it began, and the intervals themselves."""

from __future__ import annotations

__all__ = ["bottleneck_metrics"]

from typing import Any

import numpy as np

from tileq_engine.observed import Bottlenecks
from tileq_engine.pressure import CAUSES
from tileq_engine.run import PS_PER_S, Run
from tileq_theory.errors import InputError

_SHOWN = 100  # intervals of a document: the longest


def bottleneck_metrics(run: Run, shown: int = _SHOWN) -> dict[str, Any]:
    """Return the `bottlenecks` part of the metrics document, of the whole run.

    `causes` has, for each that occurred, its seconds, share of the run, number of intervals, when it began first, the
    longest interval and the most requests that waited; `intervals` the `shown` longest in order of time.
    """
    found = run.bottlenecks
    if found is None:
        raise InputError("the run did not name its bottlenecks; simulate with watch=True in the settings")
    length = found.end_ps - found.begin_ps
    return {
        "waiting_share": _share(int(length.sum()), run.info.end_ps),
        "causes": {CAUSES[c]: _cause(found, c, run.info.end_ps) for c in np.unique(found.cause).tolist()},
        "intervals_in_all": int(length.size),
        "intervals": [_interval(found, k) for k in np.sort(np.argsort(-length, kind="stable")[:shown]).tolist()],
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 else None


def _cause(found: Bottlenecks, cause: int, end_ps: int) -> dict[str, Any]:
    mine = np.flatnonzero(found.cause == cause)
    length = (found.end_ps - found.begin_ps)[mine]
    longest = int(mine[int(np.argmax(length))])
    return {
        "seconds": int(length.sum()) / PS_PER_S,
        "share": _share(int(length.sum()), end_ps),
        "intervals": int(mine.size),
        "first_s": int(found.begin_ps[mine[0]]) / PS_PER_S,
        "longest": _interval(found, longest),
        "most_waiting": int(found.waiting[mine].max()),
    }


def _interval(found: Bottlenecks, k: int) -> dict[str, Any]:
    return {
        "cause": CAUSES[int(found.cause[k])],
        "begin_s": int(found.begin_ps[k]) / PS_PER_S,
        "end_s": int(found.end_ps[k]) / PS_PER_S,
        "iterations": int(found.iterations[k]),
        "waiting": int(found.waiting[k]),
    }

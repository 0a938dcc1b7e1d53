"""Throughput of a saturated server: the capacity that no objective limits."""

from __future__ import annotations

__all__ = ["saturated_throughput"]

import numpy as np

from tileq_engine.intervals import BATCHES, Interval, batch_means_interval
from tileq_engine.run import PS_PER_S, Run
from tileq_theory.errors import InputError


def saturated_throughput(run: Run, level: float = 0.95) -> Interval:
    """Return the rate at which a saturated server finishes requests, with a batch-means interval (requests a second).

    The run must be overloaded (requests offered faster than served, or all at once). Finishes are counted from the
    moment a tenth of the requests has left (those not counted) to the moment the last one is first admitted, while
    work was always waiting.

    Raises
    ------
    InputError
        When requests stopped waiting before four fifths of them had finished being admitted, so that the server was
        not saturated.
    """
    table = {name: column[run.accepted] for name, column in run.requests.items()}
    finish, admit = np.sort(table["finish_ps"][table["finish_ps"] >= 0]), table["admit_ps"]
    if finish.size < 10 * BATCHES:
        raise InputError(f"{finish.size} requests finished; a saturated throughput needs {10 * BATCHES}")
    begin = int(finish[finish.size // 10])
    end = int(admit.max()) if not bool((admit < 0).any()) else run.info.end_ps
    waited = (admit < 0) | (admit > table["arrival_ps"])
    if float(waited[finish.size // 10 :].mean()) < 0.8 or end <= begin:
        raise InputError("the server was not saturated: requests hardly waited; offer a higher rate, or all at once")
    edges = np.linspace(begin, end, 5 * BATCHES + 1)
    # what ended with the iteration that ends at `begin` was served before it: large batches finish many at an instant
    counts = np.histogram(finish[finish > begin], bins=edges)[0].astype(float)
    return batch_means_interval(counts * (5 * BATCHES) / ((end - begin) / PS_PER_S), level)

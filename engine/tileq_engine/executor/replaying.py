"""A real run beside the simulator: the recorded iteration times in, the same timeline out."""

from __future__ import annotations

__all__ = ["differences", "replay"]

import numpy as np

from tileq_engine.executor.log import decision_of
from tileq_engine.executor.serving import Served
from tileq_engine.simulator_recorded import simulate_recorded
from tileq_engine.simulator_result import RawRun

_TIMES = ("admit_ps", "prefill_end_ps", "first_token_ps", "finish_ps", "max_gap_ps")
_COUNTS = ("tokens_done", "preemptions", "recomputed_tokens", "swapped_tokens", "gaps_over_limit", "status")
_SAMPLES = ("start_ps", "prefill_tokens", "decode_tokens", "sequences", "waiting", "running", "kv_blocks_used")


def replay(served: Served) -> RawRun:
    """Return the simulation of a real run's requests in which iteration k takes what it took for real."""
    raw = served.raw
    arrived = int((raw.status != 0).sum())  # those let in: they are the first, requests are sorted by arrival
    members = int(served.log["seqs"].sum())
    config = raw.config.with_(
        stop_time_s=None, stop_backlog=None, stop_iterations=None, trace_limit=members, sample_limit=len(served.log) + 2
    )
    durations = served.log["duration_ps"]
    if raw.stop_reason == "finished":  # whoever came after the last iteration was rejected: let the replay get there
        durations = np.append(durations, 1)
    return simulate_recorded(raw.requests.head(arrived), raw.policy, durations, config, raw.time)


def differences(served: Served, replayed: RawRun) -> list[str]:
    """Return where a real run and its replay differ, one line each; empty when they are the same to the picosecond.

    Compared: the moments and counts of every request, and of every iteration its start, its batch with the members in
    order, who waited, who was resident and the blocks used.
    """
    raw, log = served.raw, served.log
    found = []
    for name in (*_TIMES, *_COUNTS):
        ours, theirs = getattr(raw, name)[: len(replayed.status)], getattr(replayed, name)
        if not np.array_equal(ours, theirs):
            at = int(np.argmax(ours != theirs))
            found.append(f"{name} of request {at}: {ours[at]} in the run, {theirs[at]} in the replay")
    if replayed.counters["iterations"] != len(log):
        found.append(f"{len(log)} iterations in the run, {replayed.counters['iterations']} in the replay")
        return found
    mine = log.samples()
    for name in _SAMPLES:
        ours, theirs = getattr(mine, name), getattr(replayed.samples, name)
        if not np.array_equal(ours, theirs):
            at = int(np.argmax(ours != theirs))
            found.append(f"{name} of iteration {at}: {ours[at]} in the run, {theirs[at]} in the replay")
    batches = _decisions(replayed)
    if not np.array_equal(batches, log["decision"]):
        at = int(np.argmax(batches != log["decision"]))
        found.append(f"the batch of iteration {at} has other members in the replay")
    return found


def _decisions(raw: RawRun) -> np.ndarray:
    trace = raw.trace
    if not len(trace.iteration):  # nobody ever ran
        return np.zeros(0, dtype=np.int64)
    edges = np.flatnonzero(np.diff(trace.iteration, prepend=-1))
    parts = (np.split(column, edges[1:]) for column in (trace.request, trace.prefill_tokens, trace.decode))
    return np.array([decision_of(*batch) for batch in zip(*parts, strict=True)], dtype=np.int64)

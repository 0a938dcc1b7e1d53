"""A traced run in the capacity program's terms: what each iteration did towards the requests that finished."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tileq_engine.simulator import RawRun


@dataclass(frozen=True)
class Rows:
    """One entry an iteration. `tokens` and `members` are of the whole batch, the others effective work only."""

    tokens: np.ndarray
    members: np.ndarray
    prefill: np.ndarray
    decode: np.ndarray
    reads: np.ndarray
    pairs: np.ndarray
    held: np.ndarray
    duration_s: np.ndarray


def effective_rows(run: RawRun, chosen: np.ndarray) -> Rows:
    """Return the rows of a run under the paper's convention, for the chosen (finished) requests.

    Work is effective when nothing repeats it later: a request's last O decodes, which read P + 1, ..., P + O, and the
    chunks before the first of them, counted backwards to P. What a preemption throws away counts for nothing.
    """
    trace = run.trace
    size = int(trace.iteration.max()) + 1
    rows = {name: np.zeros(size, dtype=np.int64) for name in ("prefill", "decode", "reads", "pairs2", "held")}
    tokens = np.bincount(trace.iteration, weights=trace.prefill_tokens + trace.decode, minlength=size)
    members = np.bincount(trace.iteration, minlength=size)
    duration = np.zeros(size, dtype=np.int64)
    duration[trace.iteration] = trace.duration_ps
    for i in np.flatnonzero(chosen):
        mine = trace.request == i
        at, chunk, decode = trace.iteration[mine], trace.prefill_tokens[mine], trace.decode[mine]
        _add(rows, at, chunk, decode, int(run.requests.prompt_tokens[i]), int(run.requests.output_tokens[i]))
    return Rows(
        tokens=tokens.astype(np.int64),
        members=members,
        prefill=rows["prefill"],
        decode=rows["decode"],
        reads=rows["reads"],
        pairs=rows["pairs2"] / 2,
        held=rows["held"],
        duration_s=duration * 1e-12,
    )


def _add(
    rows: dict[str, np.ndarray], at: np.ndarray, chunk: np.ndarray, decode: np.ndarray, prompt: int, output: int
) -> None:
    steps = np.flatnonzero(decode)[-output:]
    assert len(steps) == output, "a finished request has decoded every output token"
    for j, step in enumerate(steps, start=1):
        rows["decode"][at[step]] += 1
        rows["reads"][at[step]] += prompt + j
        rows["held"][at[step]] += prompt + j
    left, place = prompt, int(steps[0])
    while left > 0:
        place -= 1
        assert place >= 0 and not decode[place], "chunks of one prefill stand together before the first decode"
        c = int(chunk[place])
        assert 0 < c <= left, "the chunks before the first decode add up to the prompt"
        left -= c
        rows["prefill"][at[place]] += c
        rows["pairs2"][at[place]] += c * (2 * left + c + 1)
        rows["held"][at[place]] += left + c

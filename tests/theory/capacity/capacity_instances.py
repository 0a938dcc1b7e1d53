"""Demands of fixed lengths, random instances and an independent linear program for the capacity tests."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from tileq_theory import Demand, IterationTime
from tileq_theory.capacity import Limits


def fixed(
    prompt: int, output: int, *, chunk: int | None = None, convention: str = "paper", counting: str = "whole"
) -> Demand:
    """Moments of fixed lengths, written out by summation over chunks and steps."""
    chunk = chunk or prompt
    steps = output if convention == "paper" else output - 1
    after_chunks = [min(c * chunk, prompt) for c in range(1, math.ceil(prompt / chunk) + 1)]
    if counting == "least":
        after_chunks = list(range(prompt, 0, -chunk))
    contexts = [prompt + j for j in range(1, steps + 1)]
    return Demand(
        prefill_tokens=prompt,
        decode_tokens=steps,
        kv_read_tokens=sum(contexts),
        attention_pairs=sum(range(1, prompt + 1)),
        memory_iterations=sum(after_chunks) + sum(contexts),
        slot_iterations=len(after_chunks) + steps,
        longest_prompt_tokens=prompt,
        longest_context_tokens=prompt + output,
        shortest_context_tokens=prompt + 1,
    )


def positive(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


@st.composite
def times(draw: st.DrawFn) -> IterationTime:
    maybe = lambda low, high: st.one_of(st.just(0.0), positive(low, high))  # noqa: E731
    return IterationTime(
        launch_s=draw(positive(1e-4, 2e-2)),
        weight_floor_s=draw(maybe(1e-4, 3e-2)),
        tile_s=draw(maybe(1e-4, 3e-2)),
        tile_tokens=draw(st.integers(1, 24)),
        token_s=draw(maybe(1e-6, 1e-3)),
        pair_s=draw(maybe(1e-9, 1e-5)),
        kv_token_s=draw(maybe(1e-8, 1e-4)),
        sequence_s=draw(maybe(1e-7, 1e-4)),
    )


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    lengths = st.tuples(st.integers(1, 60), st.integers(1, 60))
    classes = draw(st.lists(lengths, min_size=1, max_size=3))
    chunk = draw(st.integers(4, 64))
    shares = [draw(positive(0.1, 10)) for _ in classes]
    return Demand.mix([fixed(p, o, chunk=chunk) for p, o in classes], shares)


@st.composite
def limits(draw: st.DrawFn, time: IterationTime) -> Limits:
    maybe_int = lambda low, high: st.one_of(st.none(), st.integers(low, high))  # noqa: E731
    tbt = draw(st.one_of(st.none(), positive(1.3, 20)))
    return Limits(
        max_batch_tokens=draw(st.integers(1, 48)),
        max_num_seqs=draw(maybe_int(1, 40)),
        kv_tokens=draw(st.one_of(st.none(), positive(130, 4000))),
        tbt_s=None if tbt is None else tbt * float(time.tau_s(1)),
        nodes=draw(st.integers(1, 3)),
        couple_reads=draw(st.booleans()),
    )


def independent_rate(time: IterationTime, demand: Demand, limits: Limits, levels: range | list[int]) -> float:
    """The program of theory.md section 3 in physical units over the given levels, by scipy's interior HiGHS."""
    n = np.array(list(levels), dtype=float)
    size = len(n)
    tau = np.array([float(time.tau_s(v)) for v in n])
    scale = 1.0 / tau.min()  # iterations per second near 1 for the solver; physical units otherwise
    tau = tau * scale
    k, e, s = (scale * c for c in (time.kv_token_s, time.pair_s, time.sequence_s))
    reads = demand.memory_iterations if time.kv_counts_prefill else demand.kv_read_tokens
    x, p, d, y, z = (slice(i * size, (i + 1) * size) for i in range(5))
    rate = 5 * size
    rows: list[np.ndarray] = []
    rhs: list[float] = []

    def add(parts: list[tuple[object, float]], bound: float = 0.0) -> None:
        row = np.zeros(5 * size + 1)
        for where, value in parts:
            row[where] += value  # type: ignore[index]
        rows.append(row)
        rhs.append(bound)

    for j in range(size):
        xj, pj, dj, yj, zj = (i * size + j for i in range(5))
        add([(pj, 1), (dj, 1), (xj, -n[j])])
        if limits.max_num_seqs is not None:
            add([(dj, 1), (xj, -limits.max_num_seqs)])
        if limits.kv_tokens is not None:
            add([(yj, 1), (xj, -limits.kv_tokens)])
        add([(zj, 1), (pj, -demand.longest_prompt_tokens)])
        if limits.couple_reads and not time.kv_counts_prefill:
            add([(dj, demand.shortest_context_tokens), (yj, -1)])
            add([(yj, 1), (dj, -demand.longest_context_tokens)])
        if limits.tbt_s is not None:
            add([(xj, tau[j] - limits.tbt_s * scale), (yj, k), (zj, e), (dj, s)])
    needs = ((p, demand.prefill_tokens), (d, demand.decode_tokens), (y, reads), (z, demand.attention_pairs))
    for part, amount in needs:
        add([(part, -1.0), (rate, amount)])
    if limits.kv_tokens is not None:
        add([(x, -limits.kv_tokens), (rate, demand.memory_iterations)])
    if limits.max_num_seqs is not None:
        add([(x, -limits.max_num_seqs), (rate, demand.slot_iterations)])
    row = np.zeros(5 * size + 1)
    row[x], row[y], row[z], row[rate] = tau, k, e, s * demand.slot_iterations
    rows.append(row)
    rhs.append(1.0)
    cost = np.zeros(5 * size + 1)
    cost[rate] = -1.0
    answer = linprog(cost, A_ub=np.array(rows), b_ub=np.array(rhs), method="highs-ds")
    assert answer.status == 0, answer.message
    return float(answer.x[rate]) * scale * limits.nodes

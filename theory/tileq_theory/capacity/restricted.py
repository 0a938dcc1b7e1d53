"""Bounds of a *policy* instead of all policies: the program over only the batches that the policy can form."""

from __future__ import annotations

__all__ = ["exclusive_capacity", "rad_capacity", "rad_padded_demand", "sarathi_capacity", "static_capacity"]

from dataclasses import replace

import numpy as np
from jaxtyping import Num

from tileq_theory.capacity.answer import Capacity
from tileq_theory.capacity.levels import Level
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.solve import capacity
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, positive_int
from tileq_theory.iteration_time import IterationTime


def exclusive_capacity(time: IterationTime, demand: Demand, limits: Limits) -> Capacity:
    """Return the bound for policies whose batches are prefill only or decode only (vLLM v0, THETA): p_n d_n = 0."""
    return capacity(time, demand, limits, kinds=("prefill", "decode"))


def rad_capacity(
    time: IterationTime, demand: Demand, limits: Limits, *, prefill_tile_tokens: int, decode_tile_tokens: int
) -> Capacity:
    """Return the bound for RAD's Algorithm 1: prefill-only batches of b_lcm tokens, decode-only batches of b_col.

    Equals R / (E[P] t_p/b_lcm + E[O] t_d/b_col) when nothing but time binds (arXiv 2508.01002, Theorem 1). For
    prompts that are not multiples of the tile pass `rad_padded_demand`.
    """
    levels = [Level(prefill_tile_tokens, "prefill"), Level(decode_tile_tokens, "decode")]
    return capacity(time, demand, limits, levels=levels)


def rad_padded_demand(demand: Demand, mean_chunks: float, prefill_tile_tokens: int) -> Demand:
    """Return the demand with P replaced by b E[ceil(P/b)]: a part of a tile costs the whole tile."""
    padded = positive_int("prefill_tile_tokens", prefill_tile_tokens) * mean_chunks
    if padded < demand.prefill_tokens * (1 - 1e-12):
        raise InputError(
            f"mean_chunks is {mean_chunks}, which makes {padded} padded tokens of {demand.prefill_tokens} real ones; "
            "expected E[ceil(P/b)] of the same law"
        )
    return replace(demand, prefill_tokens=padded)


def sarathi_capacity(time: IterationTime, demand: Demand, limits: Limits, *, token_budget: int) -> Capacity:
    """Return the bound for chunked mixing with one token budget (Sarathi-Serve): one level, the budget."""
    return capacity(time, demand, limits, levels=[Level(token_budget)])


def static_capacity(
    time: IterationTime,
    prompt_tokens: Num[np.ndarray, "request"],
    output_tokens: Num[np.ndarray, "request"],
    shares: Num[np.ndarray, "request"],
    *,
    batch_size: int,
    nodes: int = 1,
) -> float:
    r"""Return the throughput of static batches (FasterTransformer), requests per second, by renewal reward.

    A batch of B independent requests is prefilled whole in one iteration and decoded until its longest member ends:

        throughput = R B / (E[t_prefill] + E[sum of decode iterations])

    Prompts and outputs are the support of the joint law, `shares` its probabilities. The law of the largest of B decode
    counts is F(d)^B; in step j the members still decoding are B P(D >= j) on average, so every iteration time that is
    affine in its batch beyond the tiles is exact, and the tile term is exact because a finished member's slot stays in
    the batch (static batches are not compacted).

    Parameters
    ----------
    prompt_tokens, output_tokens, shares
        Support points (decode steps in `output_tokens`, by the caller's token convention) and probabilities.
    batch_size
        B.
    """
    size = positive_int("batch_size", batch_size)
    weight = np.asarray(shares, dtype=float) / float(np.sum(shares))
    prompts, steps = np.asarray(prompt_tokens, dtype=float), np.asarray(output_tokens, dtype=float)
    mean_prompt = float(weight @ prompts)
    pairs = float(weight @ (prompts * (prompts + 1) / 2))
    prefill = _mean_prefill_linear(time, prompts, weight, size)
    prefill += time.pair_s * size * pairs + time.sequence_s * size
    prefill += time.kv_token_s * size * mean_prompt if time.kv_counts_prefill else 0.0
    order = np.argsort(steps)
    values, start = np.unique(steps[order], return_index=True)
    mass = np.add.reduceat(weight[order], start)
    below = np.concatenate([[0.0], np.cumsum(mass)])
    longest = float(values @ (np.minimum(below[1:], 1.0) ** size - np.minimum(below[:-1], 1.0) ** size))
    reads = size * float(weight @ (steps * prompts + steps * (steps + 1) / 2))
    decode = longest * float(time.tau_s(size)) + time.kv_token_s * reads
    decode += time.sequence_s * size * float(weight @ steps)
    return nodes * size / (prefill + decode)


def _mean_prefill_linear(time: IterationTime, prompts: np.ndarray, weight: np.ndarray, size: int) -> float:
    """Return E[tau(P_1 + ... + P_B)] by convolving the prompt law B times (whole prompts in one iteration)."""
    top = int(prompts.max())
    law = np.bincount(prompts.astype(int), weights=weight, minlength=top + 1)
    length = size * top + 1
    transform = np.fft.rfft(law, n=length)
    total = np.maximum(np.fft.irfft(transform**size, n=length), 0.0)
    return float(np.asarray(time.tau_s(np.arange(length))) @ (total / total.sum()))

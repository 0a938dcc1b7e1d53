"""A server's log, made up with a known truth: what notebook 05 reads when no server is at hand."""

from __future__ import annotations

__all__ = ["KV_TOKENS", "TRUTH", "further_batches", "write_vllm_log"]

from pathlib import Path

import numpy as np
from jaxtyping import Float

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.registry import policy
from tileq_engine.run import Run
from tileq_theory.iteration_time import IterationTime
from tileq_theory.workloads import named_workload

KV_TOKENS = 120_000
NOISE = 0.03
# no machine's, but of the size of an 8B model on a 48 GB card
TRUTH = IterationTime(
    launch_s=0.004, weight_floor_s=0.016, tile_s=0.0085, tile_tokens=128, token_s=4e-6, kv_token_s=1.6e-7
)


def _batches(seed: int, requests: int, rate: float) -> dict[str, Float[np.ndarray, "iteration"]]:
    """Return the iterations of a vLLM-like engine under the truth: composition and noisy times."""
    asked = Requests.from_workload(named_workload("chat"), requests, seed=seed, rate=rate)
    config = EngineConfig(kv_tokens=KV_TOKENS, token_budget=512, max_num_seqs=128, sample_limit=1 << 20)
    run = Run.of(simulate(asked, policy("vllm_v1"), TRUTH, config))
    columns = {name: column.astype(float) for name, column in run.samples.items()}
    noise = np.random.default_rng([seed, 5]).lognormal(0.0, NOISE, columns["start_ps"].size)
    # what a log prints: milliseconds with two digits
    columns["ms"] = np.round(columns["duration_ps"] / 1e9 * noise, 2)
    return columns


def write_vllm_log(path: Path, *, requests: int = 300, rate: float = 4.0, decodes_only: bool = False) -> int:
    """Write the log of vLLM with --enable-logging-iteration-details; return its number of iterations.

    Parameters
    ----------
    path
        Where it goes.
    requests, rate
        Requests of the chat mix served, and their rate, requests per second.
    decodes_only
        Leave out every iteration that holds a prompt.
    """
    b = _batches(1, requests, rate)
    lines = [f"INFO 11-29 10:00:00 [kv_cache_utils.py:1087] GPU KV cache size: {KV_TOKENS:,} tokens"]
    for i in range(b["ms"].size):
        prefill, decode = int(b["prefill_tokens"][i]), int(b["decode_tokens"][i])
        if prefill and decodes_only:
            continue
        usage = 100 * b["kv_blocks_used"][i] * 16 / KV_TOKENS
        lines.append(
            f"INFO 11-29 10:00:01 [loggers.py:201] Iteration({i}): {int(b['sequences'][i]) - decode} context requests, "
            f"{prefill} context tokens, {decode} generation requests, {decode} generation tokens, "
            f"iteration elapsed time: {b['ms'][i]:.2f} ms, GPU KV cache usage: {usage:.1f}%"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines) - 1


def further_batches(count: int = 400) -> dict[str, Float[np.ndarray, "batch"]]:
    """Return batches that no log has: tokens, kv_tokens, sequences and their measured seconds."""
    b = _batches(2, 400, 4.5)
    chosen = np.random.default_rng(7).permutation(b["ms"].size)[:count]
    tokens = (b["prefill_tokens"] + b["decode_tokens"])[chosen]
    kv = np.maximum(0.0, b["kv_blocks_used"] * 16 - b["prefill_tokens"])[chosen]
    return {
        "tokens": tokens,
        "kv_tokens": kv,
        "sequences": b["sequences"][chosen],
        "prefill_tokens": b["prefill_tokens"][chosen],
        "seconds": b["ms"][chosen] / 1e3,
    }

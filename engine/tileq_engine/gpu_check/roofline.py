"""How much of the device a decode and a prefill use: bytes and operations a second over what the device itself does."""

from __future__ import annotations

__all__ = ["device_peaks", "roofline_shares"]

import time
from typing import Any

import numpy as np

from tileq_engine.executor.clocks import Probe
from tileq_engine.executor.profiling import Design, measure_points


def device_peaks(backend: Any, seconds: float = 4.0) -> dict[str, float]:
    """Return bytes a second of a large copy and operations a second of a large matrix product, the best of several."""
    import torch

    device, number = backend.decoder.device, backend.decoder.dtype
    cuda = backend.cuda
    size = 1 << (31 if cuda else 26)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    side = 8192 if cuda else 768
    left = torch.ones(side, side, dtype=number, device=device)
    right = torch.ones(side, side, dtype=number, device=device)

    def best(work: Any) -> float:
        fastest, until = float("inf"), time.monotonic() + seconds / 2
        while time.monotonic() < until:
            start = time.perf_counter()
            work()
            if cuda:
                torch.cuda.synchronize(device)
            fastest = min(fastest, time.perf_counter() - start)
        return fastest

    copy = 2.0 * size / best(lambda: target.copy_(source))
    product = 2.0 * side**3 / best(lambda: torch.mm(left, right))
    return {"copy_bytes_per_s": copy, "matmul_flops_per_s": product}


def roofline_shares(
    backend: Any, probe: Probe, peaks: dict[str, float], sequences: int, context: int, tokens: int
) -> Any:
    """Measure a decode-only and a prefill-only iteration; return their shares of the device's own peaks.

    A decode reads every weight but the embedding table and the KV of its contexts; a prefill multiplies every weight
    but the table by each token, twice counted, and 4 h d a query-key pair and layer.
    """
    c = backend.decoder.config
    size = backend.decoder.weights.embedding.element_size()
    weights = c.parameters - (0 if c.tie_embeddings else c.vocab_size * c.hidden_size)
    now = time.perf_counter_ns if backend.cuda else time.thread_time_ns
    found: dict[str, Any] = {}
    for count in sorted({1, max(1, sequences // 4), sequences}):
        design = Design(decodes=count, context_tokens=context)
        point = measure_points(backend, [design], probe, now, most_s=2.0)[0]
        moved = weights * size + point.kv_tokens * c.kv_bytes_per_token(size)
        found[f"decode_{count}"] = {
            "sequences": count,
            "kv_tokens": point.kv_tokens,
            "seconds": point.raw_seconds,
            "bytes_per_s": moved / point.raw_seconds,
            "bandwidth_share": moved / point.raw_seconds / peaks["copy_bytes_per_s"],
        }
    prompts = Design(chunk_tokens=tokens, pieces=-(-tokens // context))
    point = measure_points(backend, [prompts], probe, now, most_s=2.0)[0]
    body = weights - c.vocab_size * c.hidden_size  # logits are wanted for the last token of a prompt alone
    work = 2.0 * body * tokens + 4.0 * c.layers * c.heads * c.head_dim * point.pairs
    found["prefill"] = {
        "tokens": tokens,
        "seconds": point.raw_seconds,
        "flops_per_s": work / point.raw_seconds,
        "matmul_share": work / point.raw_seconds / peaks["matmul_flops_per_s"],
    }
    return found


def largest_share(shares: dict[str, Any]) -> float:
    """Return the largest bandwidth share of the decodes."""
    return float(np.max([v["bandwidth_share"] for k, v in shares.items() if k.startswith("decode")]))

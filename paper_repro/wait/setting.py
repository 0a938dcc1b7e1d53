"""What the items on WAIT share: Llama-2-7B on an A100-80GB, as the source's simulator has it, and its baselines.

The source simulates with Vidur's random forests, which are not published as numbers. Four numbers that are fix an
iteration time t = c + max(w, beta n) + e A + k K:

* decode batches cost d0 + d1 KV, d0 = 10.0424 ms, d1 = .33422 us (authors' code, github.com/Luoxiaogan/vidur_or):
  k = d1, c + w = d0;
* a rotation of 22 stages (two prefill chunks, 20 decodes) with 21 requests in them serves 22.59/s, with 100 requests
  24.58/s (same place): with P = requests a stage, P/rate = c + P T, which gives c and T = 532 beta + attention.

e is the catalogue's roofline for that GPU, corrected by measurements: it is 1 % of T.
"""

from __future__ import annotations

__all__ = ["CAPACITY_TOKENS", "CASES", "D0_S", "D1_S", "PAPER", "draw", "engine", "iteration_time"]

from typing import Any

import numpy as np

from tileq_engine.config import EngineConfig
from tileq_engine.requests import Requests
from tileq_theory.iteration_time import IterationTime

PAPER = "Ao et al., arXiv 2504.11320"
D0_S, D1_S = 0.010042382503853812, 3.342175435455382e-07
CAPACITY_TOKENS = 137_000
_PROMPT, _OUTPUT, _STAGES = 512, 20, 22
_ROTATIONS = ((21, 22.59), (100, 24.58))  # requests in the 22 stages, requests/s

# label -> policy, its settings, engine settings. Sarathi and vLLM as in Vidur: chunks of 512; prompts up to 4096 tokens
# a batch and 128 sequences. WAIT moves when n prompts have gathered; n = 2 is a cap of 44 on the source's grid
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "WAIT": ("wait", {"thresholds": [2]}, {"max_num_seqs": 512}),
    "Nested WAIT": ("nested_wait", {"boundaries": [20], "thresholds": [2, 1]}, {"max_num_seqs": 512}),
    "Sarathi": ("sarathi", {}, {"token_budget": 512, "max_num_seqs": 512}),
    "vLLM": ("vllm_v0", {}, {"token_budget": 4096, "max_num_seqs": 128}),
}


def _attention_s(pair_s: float) -> float:
    chunk = _PROMPT // 2
    pairs = chunk * (chunk + 1) / 2 + chunk * (chunk + (chunk + 1) / 2)
    reads = sum(_PROMPT + j for j in range(1, _OUTPUT + 1))
    return pair_s * pairs + D1_S * reads


def iteration_time() -> IterationTime:
    """Return the iteration time that the four published numbers fix."""
    from tileq_theory.hardware import load_gpu, load_model, roofline

    pair_s = roofline(load_gpu("a100-sxm-80gb"), load_model("llama-2-7b")).pair_s
    (few, slow), (many, fast) = _ROTATIONS
    stages = np.array([few, many]) / _STAGES
    slope_s = float(np.diff(stages / np.array([slow, fast]))[0] / np.diff(stages)[0])
    launch_s = float(stages[0] / slow - stages[0] * slope_s)
    return IterationTime(
        launch_s=launch_s,
        weight_floor_s=D0_S - launch_s,
        tile_s=0.0,
        tile_tokens=1,
        token_s=(slope_s - _attention_s(pair_s)) / (_PROMPT + _OUTPUT),
        pair_s=pair_s,
        kv_token_s=D1_S,
        sequence_s=0.0,
    )


def draw(rate_per_s: float, count: int, outputs: Any, rng: np.random.Generator) -> Requests:
    """Return Poisson arrivals of 512-token prompts; `outputs` are pairs (share, tokens)."""
    shares, tokens = zip(*outputs, strict=True)
    kind = rng.choice(len(tokens), count, p=shares)
    return Requests.from_arrays(
        prompt_tokens=np.full(count, _PROMPT),
        output_tokens=np.asarray(tokens)[kind],
        arrival_s=np.cumsum(rng.exponential(1 / rate_per_s, count)),
    )


def engine(case: str, **changes: Any) -> tuple[Any, EngineConfig]:
    """Return policy and engine settings of a case: the source's memory, a watermark of 1 %, O decode steps."""
    from tileq_engine.registry import policy

    name, params, own = CASES[case]
    config = EngineConfig(kv_tokens=CAPACITY_TOKENS, watermark=0.01, convention="paper", **{**own, **changes})
    return policy(name, **params), config

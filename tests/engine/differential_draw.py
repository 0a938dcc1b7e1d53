"""Random small instances of every policy and every setting that a run can have.

An instance is drawn through one function `pick(low, high)`, so that a seeded campaign (random.randint) and hypothesis
(integers that shrink) draw from the same space: tight memory, ties, bursts, one-token outputs, prompts longer than the
budget, both token conventions, recompute, swap and no preemption, watermarks, queue limits, oversize prompts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tileq_reference import BLOCK

from tileq_theory.iteration_time import IterationTime

Pick = Callable[[int, int], int]

ORDERS = {"vllm_v1": ("fcfs", "priority"), "sarathi": ("fcfs", "spf"), "slai": ("fcfs", "spf", "paying_spf")}
BASES = ("vllm_v1", "sarathi")
CHUNKED = ("orca", "vllm_v1", "sarathi", "sjf", "svf", "priority", "aging", "slai", "vtc", "priority_aging", "edf")
TENANTS = 3
WHOLE_PROMPTS = ("static", "orca", "vllm_v0")
EVERY_POLICY = (
    "static", "orca", "vllm_v0", "vllm_v1", "sarathi", "sjf", "svf", "priority", "aging", "rad", "rad_general",
    "slai", "wait", "nested_wait", "theta", "eb_plus", "psjf", "srpt", "sglang", "vtc", "priority_aging", "edf",
)  # fmt: skip


@dataclass(frozen=True)
class Instance:
    """Everything a simulator is told."""

    policy: str
    params: dict[str, Any]
    requests: tuple[dict[str, Any], ...]
    time: IterationTime
    budget: int
    max_seqs: int
    kv_blocks: int
    watermark: int
    convention: str
    preemption: str
    swap_us_per_token: int = 0
    queue_limit: int | None = None
    longest: int | None = None
    oversize: str = "reject"
    reservation: str = "policy"
    tenants: tuple[tuple[float, int], ...] = ()  # weight, quota (0: none)
    pressure: tuple[str, int, int, int] | None = None  # action, waiting, blocks used from which on, shrunk budget
    control: tuple[float, int, int] | None = None  # limit in s, least and most tokens
    watch: bool = False
    samples: int = 16
    hash_tokens: int = 0  # tokens of a block of the prefix cache; 0: there is none


def draw_instance(pick: Pick, policy: str) -> Instance:
    """One small instance of `policy`."""
    budget = pick(1, 48) if policy not in WHOLE_PROMPTS else pick(8, 96)
    requests = tuple(draw_requests(pick, budget, policy))
    peak = max(-(-(r["prompt"] + r["output"]) // BLOCK) for r in requests)
    watermark = pick(0, 1)
    tight = max(1, peak - 1), peak + 1 + len(requests)
    blocks = (pick(*tight) if pick(0, 5) else 10_000) + watermark
    params = draw_params(pick, policy)
    max_seqs = max(pick(1, min(8, budget)), params.get("k", 1))
    x = Instance(
        policy=policy,
        params=params,
        requests=requests,
        time=draw_time(pick),
        budget=budget,
        max_seqs=max_seqs,
        kv_blocks=blocks,
        watermark=watermark,
        convention=("engine", "paper")[pick(0, 1)],
        preemption=("recompute", "recompute", "recompute", "swap", "swap", "none")[pick(0, 5)],
        swap_us_per_token=pick(0, 3),
        queue_limit=None if pick(0, 7) else pick(1, 4),
        longest=None if pick(0, 7) else pick(20, 80),
        oversize="reject" if pick(0, 4) else "wait",
        **draw_extras(pick, policy, budget, max_seqs, blocks, params),
    )
    return x if pick(0, 2) else with_prefixes(pick, x)


def draw_extras(
    pick: Pick, policy: str, budget: int, max_seqs: int, blocks: int, params: dict[str, Any]
) -> dict[str, Any]:
    """Reservation, tenants, backpressure, control and watch, each in a part of the instances."""
    base = params.get("base", "vllm_v1" if policy in ("vllm_v1", "sjf", "priority", "aging", "edf") else policy)
    least = max_seqs if base == "vllm_v1" else 1  # vLLM v1 asks for a token a resident
    chunked = policy in CHUNKED and params.get("chunks", True)
    extras: dict[str, Any] = {
        "reservation": ("policy", "policy", "optimistic", "prompt", "conservative")[pick(0, 4)],
        "watch": bool(pick(0, 1)),
        "samples": (2, 16)[pick(0, 1)],
    }
    if policy == "vtc" or (pick(0, 3) == 0 and "wait" not in policy):
        weights = [(1.0, 3.0, 0.5, 0.0)[pick(0, 3)] for _ in range(TENANTS)]
        weights[pick(0, TENANTS - 1)] = 2.0
        extras["tenants"] = tuple((w, 0 if pick(0, 2) else pick(1, 3)) for w in weights)
    if pick(0, 3) == 0:
        action = ("reject", "reroute", "shrink" if chunked else "reject")[pick(0, 2)]
        extras["pressure"] = (action, pick(1, 4), pick(1, min(blocks, 12)), pick(least, max(least, budget)))
    if chunked and pick(0, 4) == 0:
        low = pick(least, max(least, budget))
        extras["control"] = (pick(1, 40) * 1e-4, low, low + pick(0, 2 * budget))
    return extras


def with_prefixes(pick: Pick, x: Instance) -> Instance:
    """The instance with a prefix cache: two names for a block, mostly, so that prefixes are shared and part."""
    size = BLOCK * pick(1, 2)
    requests = []
    for r in x.requests:
        covered = r["prompt"] + (r["output"] if pick(0, 1) else 0)
        path = tuple(pick(0, 1) if pick(0, 5) else pick(2, 9) for _ in range(covered // size))
        requests.append({**r, "path": path})
    return replace(x, requests=tuple(requests), hash_tokens=size)


def draw_requests(pick: Pick, budget: int, policy: str) -> list[dict[str, Any]]:
    longest = budget + 2 if policy in WHOLE_PROMPTS else 2 * budget + 3
    clock, out = 0, []
    for _ in range(pick(1, 9)):
        clock += 0 if pick(0, 2) else pick(0, 30) * 10**8  # bursts: two in three come together
        out.append(
            {
                "arrival": clock,
                "prompt": pick(1, min(longest, 70)),
                "output": 1 if pick(0, 4) == 0 else pick(1, 24),
                "predicted": pick(1, 24),
                "priority": pick(0, 2),
                "paying": pick(0, 1),
                "kind": pick(0, 1),
                "tenant": pick(0, TENANTS - 1),
                "tbt_limit": (0, 10**9, 4 * 10**9, 10**10)[pick(0, 3)],
            }
        )
    return out


def draw_time(pick: Pick) -> IterationTime:
    return IterationTime(
        launch_s=pick(0, 3) * 1e-4 + 1e-5,
        weight_floor_s=pick(0, 2) * 1e-4,
        tile_s=pick(0, 4) * 1e-4,
        tile_tokens=pick(1, 16),
        token_s=pick(0, 3) * 1e-5,
        pair_s=pick(0, 3) * 1.7e-9,
        kv_token_s=pick(0, 3) * 1.3e-8,
        sequence_s=pick(0, 2) * 1e-6,
        kv_counts_prefill=bool(pick(0, 1)),
    )


def draw_params(pick: Pick, policy: str) -> dict[str, Any]:
    """Settings of the policy, by the engine's names."""
    if policy in ORDERS:
        params: dict[str, Any] = {"order": ORDERS[policy][pick(0, len(ORDERS[policy]) - 1)]}
        if policy == "slai":
            params |= {"theta": ("dynamic", 10)[pick(0, 1)], "decode_cap": (128, 2)[pick(0, 1)]}
        if policy == "vllm_v1":
            params["admission"] = ("chunk", "sequence")[pick(0, 1)]
        return params
    if policy in ("theta", "eb_plus"):
        return {"k": pick(1, 3)}
    if policy == "wait":
        return {"thresholds": [pick(1, 3), pick(1, 3)]}
    if policy == "nested_wait":
        first = pick(1, 6)
        cuts = [first, first + pick(1, 8)][: pick(1, 2)]
        return {"boundaries": cuts, "thresholds": [pick(1, 3) for _ in range(len(cuts) + 1)]}
    if policy == "rad_general":
        return {"levels": [draw_level(pick) for _ in range(pick(1, 3))]}
    return draw_simple_params(pick, policy)


def draw_level(pick: Pick) -> tuple[int, int, int, int]:
    tokens = pick(1, 20)
    prefill = pick(0, tokens)
    return tokens, prefill, pick(0, tokens - prefill), pick(1, 5)


def draw_simple_params(pick: Pick, policy: str) -> dict[str, Any]:
    if policy == "orca":
        return {"chunks": bool(pick(0, 1))}
    if policy == "sjf":
        return {"key": ("output", "total")[pick(0, 1)], "predictor": "given", "base": BASES[pick(0, 1)]}
    if policy == "aging":
        return {"predictor": "given", "base": BASES[pick(0, 1)]}
    if policy == "vtc":
        return {"base": BASES[pick(0, 1)]}
    if policy == "priority_aging":
        return {"step_s": pick(0, 40) * 1e-4, "base": BASES[pick(0, 1)]}
    if policy == "edf":
        return {"ttft_s": [pick(1, 40) * 1e-4, pick(1, 40) * 1e-4], "base": BASES[pick(0, 1)]}
    if policy in ("svf", "psjf", "srpt"):
        return {"predictor": "given"}
    if policy == "priority":
        return {"preemptive": bool(pick(0, 1)), "base": BASES[pick(0, 1)]}
    if policy == "sglang":
        return {
            "order": ("longest_prefix", "fcfs")[pick(0, 3) // 3],
            "mixed_chunk": bool(pick(0, 1)),
            "new_token_ratio": pick(0, 10) / 10,
            "fcfs_beyond": (0, 2, 128)[pick(0, 2)],
        }
    if policy == "rad":
        b_col, b_lcm, cycle = pick(1, 6), pick(1, 12), (None, 1, 2, 5)[pick(0, 3)]
        return {"b_col": b_col, "b_lcm": b_lcm, "cycle": cycle, "pad": bool(pick(0, 3))}
    return {}

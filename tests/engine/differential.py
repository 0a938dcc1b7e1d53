"""Random small instances, and the decisions a simulator took on them, in a form that can be compared to the bit.

An instance is drawn through one function `pick(low, high)`, so that a seeded campaign (random.randint) and hypothesis
(integers that shrink) draw from the same space: tight memory, ties, bursts, one-token outputs, prompts longer than the
budget, both token conventions, recompute and swap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tileq_reference import BLOCK, POLICIES, Batch, Config, Cost, Request, Simulator

from tileq_theory.iteration_time import IterationTime

Pick = Callable[[int, int], int]

# policy name of the engine -> (name in the reference, settings drawn for it)
ORDERS = {"vllm_v1": ("fcfs", "priority"), "sarathi": ("fcfs", "spf"), "slai": ("fcfs", "spf", "paying_spf")}
WHOLE_PROMPTS = ("static", "orca", "vllm_v0")


@dataclass(frozen=True)
class Instance:
    """Everything a simulator is told."""

    policy: str
    params: dict[str, Any]
    requests: tuple[dict[str, int], ...]
    time: IterationTime
    budget: int
    max_seqs: int
    kv_blocks: int
    watermark: int
    convention: str
    swap: bool
    swap_us_per_token: int = 0
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Decisions:
    """Every batch (start, duration, sorted members) and every request's fate."""

    iterations: tuple[tuple[int, int, tuple[tuple[int, int, bool], ...]], ...]
    fates: tuple[dict[str, int], ...]

    def first_difference(self, other: Decisions) -> str | None:
        """None when equal, else the first iteration or request on which the two part."""
        for i, (a, b) in enumerate(zip(self.iterations, other.iterations, strict=False)):
            if a != b:
                return f"iteration {i}: {a} against {b}"
        if len(self.iterations) != len(other.iterations):
            return f"{len(self.iterations)} iterations against {len(other.iterations)}"
        for i, (f, g) in enumerate(zip(self.fates, other.fates, strict=True)):
            for name in f:
                if f[name] != g[name]:
                    return f"request {i}: {name} {f[name]} against {g[name]}"
        return None


# -------------------------------------------------------------------- drawing


def draw_instance(pick: Pick, policy: str) -> Instance:
    """One small instance of `policy`."""
    budget = pick(1, 48) if policy not in WHOLE_PROMPTS else pick(8, 96)
    requests = tuple(draw_requests(pick, budget, policy))
    peak = max(-(-(r["prompt"] + r["output"]) // BLOCK) for r in requests)
    watermark = pick(0, 1)
    blocks = pick(max(1, peak - 1), peak + 1 + len(requests)) + watermark
    params = draw_params(pick, policy)
    return Instance(
        policy=policy,
        params=params,
        requests=requests,
        time=draw_time(pick),
        budget=budget,
        max_seqs=max(pick(1, min(8, budget)), params.get("k", 1)),
        kv_blocks=blocks,
        watermark=watermark,
        convention=("engine", "paper")[pick(0, 1)],
        swap=policy == "vllm_v0" and bool(pick(0, 1)),
        swap_us_per_token=pick(0, 3),
    )


def draw_requests(pick: Pick, budget: int, policy: str) -> list[dict[str, int]]:
    longest = budget if policy in WHOLE_PROMPTS else 2 * budget + 3
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
            params["theta"] = ("dynamic", 10)[pick(0, 1)]
        return params
    if policy == "orca":
        return {"chunks": bool(pick(0, 1))}
    if policy == "sjf":
        return {"key": ("output", "total")[pick(0, 1)], "predictor": "given"}
    if policy == "svf":
        return {"predictor": "given"}
    if policy == "theta":
        return {"k": pick(1, 3)}
    if policy == "priority":
        return {"preemptive": False}
    if policy == "rad":
        return {"b_col": pick(1, 6), "b_lcm": pick(1, 12), "cycle": (None, 1, 2, 5)[pick(0, 3)]}
    return {}


# -------------------------------------------------------------------- the reference's decisions


def cost_of(time: IterationTime) -> Cost:
    """The model's coefficients in picoseconds."""
    ps = 1e12
    return Cost(
        c=time.launch_s * ps,
        w=time.weight_floor_s * ps,
        a=time.tile_s * ps,
        b=time.tile_tokens,
        beta=time.token_s * ps,
        e=time.pair_s * ps,
        k=time.kv_token_s * ps,
        s=time.sequence_s * ps,
        kv_counts_prefill=time.kv_counts_prefill,
    )


def reference_settings(x: Instance) -> tuple[str, dict[str, Any]]:
    """The reference's own names for the engine's policy and parameters."""
    p = dict(x.params)
    if x.policy in ("sjf", "priority", "aging"):
        order = {"output": "sjf", "total": "sjf_total"}[p.get("key", "output")] if x.policy == "sjf" else x.policy
        return "vllm_v1", {"order": order}
    if x.policy == "svf":
        return "sarathi", {"order": "svf"}
    if x.policy == "orca":
        p = {"whole": not p.get("chunks", False)}
    if x.policy == "slai":
        p = {"order": p["order"], "fixed": p["theta"] == 10}
    if x.policy in WHOLE_PROMPTS and p.get("whole", True):
        p["whole_budget"] = x.budget
    return x.policy, p


def reference_decisions(x: Instance, check: bool = True) -> Decisions:
    name, extra = reference_settings(x)
    requests = [
        Request(id=i, **{k: v for k, v in r.items() if k != "paying"}, paying=bool(r["paying"]))
        for i, r in enumerate(x.requests)
    ]
    config = Config(
        policy=name,
        budget=x.budget,
        max_seqs=x.max_seqs,
        kv_blocks=x.kv_blocks,
        watermark=x.watermark,
        engine_convention=x.convention == "engine",
        swap=x.swap,
        swap_ps_per_token=x.swap_us_per_token * 10**6,
        extra=extra,
    )
    s = Simulator(requests, config, cost_of(x.time), POLICIES[name])
    if check:
        s.observe = Simulator.check
    s.run(iterations=10_000)  # no instance here needs more: beyond it a policy loops
    return Decisions(tuple(_batch(b) for b in s.batches), tuple(_fate(r) for r in requests))


def _batch(b: Batch) -> tuple[int, int, tuple[tuple[int, int, bool], ...]]:
    return b.start, b.end - b.start, b.trace()


def _fate(r: Request) -> dict[str, int]:
    return {
        "rejected": int(r.status == "rejected"),
        "prefill_end_ps": -1 if r.prefill_end is None else r.prefill_end,
        "first_token_ps": r.tokens_at[0] if r.tokens_at else -1,
        "finish_ps": -1 if r.done_at is None else r.done_at,
        "tokens_done": r.generated,
        "preemptions": r.preemptions,
        "recomputed_tokens": r.recomputed,
        "swapped_tokens": r.swapped_tokens,
        "max_gap_ps": max(r.gaps, default=0),
    }


# -------------------------------------------------------------------- the engine's decisions


def engine_decisions(x: Instance, mode: str) -> Decisions:
    """The same of the compiled engine ('compiled' has no trace of jumped iterations: compare fates only)."""
    import numpy as np

    from tileq_engine.config import EngineConfig
    from tileq_engine.registry import policy
    from tileq_engine.requests import Requests
    from tileq_engine.simulator import simulate

    def column(name: str, dtype: Any = np.int64) -> Any:
        return np.array([r[name] for r in x.requests], dtype=dtype)

    requests = Requests.from_arrays(
        prompt_tokens=column("prompt"),
        output_tokens=column("output"),
        arrival_ps=column("arrival"),
        predicted_output_tokens=column("predicted"),
        class_index=column("kind"),
        priority=column("priority"),
        tbt_limit_ps=column("tbt_limit"),
        paying=column("paying", bool),
    )
    config = EngineConfig(
        token_budget=x.budget,
        max_num_seqs=x.max_seqs,
        kv_tokens=x.kv_blocks * BLOCK,
        watermark=(x.watermark + 0.5) / x.kv_blocks if x.watermark else 0.0,
        convention=x.convention,
        preemption="swap" if x.swap else "recompute",
        swap_token_s=x.swap_us_per_token * 1e-6,
        check=True,
        trace_limit=1_000_000,
    )
    run = simulate(requests, policy(x.policy, **x.params), x.time, config, mode=mode)
    return Decisions(_iterations(run.trace), tuple(_engine_fate(run, i) for i in range(len(requests))))


def _iterations(trace: Any) -> tuple[tuple[int, int, tuple[tuple[int, int, bool], ...]], ...]:
    rows: dict[int, tuple[int, int, list[tuple[int, int, bool]]]] = {}
    for it, start, took, who, chunk, decode in zip(
        trace.iteration,
        trace.start_ps,
        trace.duration_ps,
        trace.request,
        trace.prefill_tokens,
        trace.decode,
        strict=True,
    ):
        members = rows.setdefault(int(it), (int(start), int(took), []))[2]
        members.append((int(who), int(chunk) if chunk else 1, bool(decode)))
    return tuple((start, took, tuple(sorted(m))) for _, (start, took, m) in sorted(rows.items()))


def _engine_fate(run: Any, i: int) -> dict[str, int]:
    names = (
        "prefill_end_ps", "first_token_ps", "finish_ps", "tokens_done", "preemptions", "recomputed_tokens",
        "swapped_tokens", "max_gap_ps",
    )  # fmt: skip
    return {"rejected": int(run.status[i] == 4), **{n: int(getattr(run, n)[i]) for n in names}}


def smaller(x: Instance, differs: Callable[[Instance], bool]) -> Instance:
    """Drop requests while the two still part: the minimal example for a report."""
    kept = list(x.requests)
    for r in list(kept):
        fewer = [k for k in kept if k is not r]
        if fewer and differs(replace(x, requests=tuple(fewer))):
            kept = fewer
    return replace(x, requests=tuple(kept))

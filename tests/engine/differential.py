"""The decisions a simulator took on an instance, in a form that can be compared to the bit: reference and engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from differential_draw import WHOLE_PROMPTS, Instance, draw_instance
from tileq_reference import BLOCK, POLICIES, Batch, Config, Cost, Request, Simulator

from tileq_theory.iteration_time import IterationTime

__all__ = ["Decisions", "Instance", "draw_instance", "engine_decisions", "reference_decisions", "smaller"]

ENDLESS = 10_000  # iterations: no instance here needs more, beyond them a policy loops
TRACED = 20_000  # batch members written down


@dataclass(frozen=True)
class Decisions:
    """Every batch (start, duration, sorted members) and every request's fate."""

    iterations: tuple[tuple[int, int, tuple[tuple[int, int, bool], ...]], ...]
    fates: tuple[dict[str, int], ...]
    accounts: tuple[tuple[int, ...], ...] = ()  # by tenant: prefilled, delivered, counter, starved
    causes: tuple[tuple[int, ...], ...] = ()  # of bottlenecks: cause, begin, end, iterations, waiting

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
        if self.accounts != other.accounts:
            return f"tenants {self.accounts} against {other.accounts}"
        for i, (c, d) in enumerate(zip(self.causes, other.causes, strict=False)):
            if c != d:
                return f"bottleneck {i}: {c} against {d}"
        if len(self.causes) != len(other.causes):
            return f"{len(self.causes)} bottlenecks against {len(other.causes)}"
        return None


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
    name, p = _reference_policy(x)
    p["waiting order"] = p.get("order", "fcfs") if name in ("vllm_v1", "sarathi", "slai") else "fcfs"
    return name, p


def _reference_policy(x: Instance) -> tuple[str, dict[str, Any]]:
    p = dict(x.params)
    if x.policy == "vtc":
        return p["base"], {"order": "vtc", "fair": True}
    if x.policy == "priority_aging":
        return p["base"], {"order": "aged", "age": round(p["step_s"] * 1e12)}
    if x.policy == "edf":
        return p["base"], {"order": "deadline", "deadlines": [round(t * 1e12) for t in p["ttft_s"]]}
    if x.policy in ("sjf", "priority", "aging"):
        order = {"output": "sjf", "total": "sjf_total"}[p.get("key", "output")] if x.policy == "sjf" else x.policy
        return p.get("base", "vllm_v1"), {"order": order, "preemptive": p.get("preemptive", False)}
    if x.policy == "svf":
        return "sarathi", {"order": "svf"}  # its own promise: predicted ends
    if x.policy == "orca":
        p = {"whole": not p.get("chunks", False)}
    if x.policy == "slai":
        p = {**p, "fixed": p["theta"] == 10, "theta": 5}
    if x.policy == "rad_general":
        p = {"levels": millionths(p["levels"])}
    if x.policy == "eb_plus":
        p = {**p, "mixes": mixes(x)}
    if x.policy in ("wait", "nested_wait"):
        p = {"restart": True, "starts": [0, *p.get("boundaries", ())], "thresholds": p["thresholds"]}
    if x.policy == "sglang":
        p["reserve"] = round(1000 * p["new_token_ratio"])
    if x.policy in WHOLE_PROMPTS and p.get("whole", True) and x.oversize == "reject":
        p["whole_budget"] = x.budget
    return x.policy, p


def millionths(levels: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Shares in millionths that sum to one million; the first level takes the rounding."""
    total = sum(share for *_, share in levels)
    shares = [round(1e6 * share / total) for *_, share in levels]
    shares[0] += 1_000_000 - sum(shares)
    return [(n, p, d, share) for (n, p, d, _), share in zip(levels, shares, strict=True)]


def mixes(x: Instance) -> bool:
    """What EB+'s crossover test, made before the run, says; the batches that follow are what is compared."""
    from tileq_engine.registry import policy

    rule = policy(x.policy, **x.params)
    assert rule.prepare is not None
    return bool(rule.prepare(rule, requests_of(x), x.time, config_of(x)).scalars["level"])


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
        swap=x.preemption == "swap",
        preempt=x.preemption != "none",
        swap_ps_per_token=x.swap_us_per_token * 10**6,
        queue_limit=x.queue_limit,
        prefix_tokens=x.hash_tokens,
        longest=x.longest,
        reservation=x.reservation,
        tenants=tuple(charges(x)),
        pressure=x.pressure,
        control=None if x.control is None else (round(x.control[0] * 1e12), *x.control[1:]),
        watch=x.watch,
        extra=extra,
    )
    s = Simulator(requests, config, cost_of(x.time), POLICIES[name])
    if check:
        s.observe = Simulator.check
    s.run(iterations=ENDLESS)
    end = s.now
    accounts = tuple(
        (a.prefilled, a.delivered, a.counter, max(a.starved, end - a.since if a.present else 0)) for a in s.accounts
    )
    causes = tuple(tuple(c) for c in s.causes)
    return Decisions(tuple(_batch(b) for b in s.batches), tuple(_fate(r) for r in requests), accounts, causes)


def charges(x: Instance) -> list[tuple[int, int, int, int]]:
    """What a token costs each tenant (prices 1 and 2, heaviest tenant: 2^19 and 2^20), its quota, where it starts."""
    top = max((weight for weight, _ in x.tenants), default=1.0)
    rows = []
    for weight, quota in x.tenants:
        scale = 2**19 * (top / weight if weight else 1.0)
        rows.append((round(scale), round(2 * scale), quota, 0 if weight else 2**60))
    return rows


def _batch(b: Batch) -> tuple[int, int, tuple[tuple[int, int, bool], ...]]:
    return b.start, b.end - b.start, b.trace()


def _fate(r: Request) -> dict[str, int]:
    return {
        "reject_reason": r.reason,
        "prefill_end_ps": -1 if r.prefill_end is None else r.prefill_end,
        "first_token_ps": r.tokens_at[0] if r.tokens_at else -1,
        "finish_ps": -1 if r.done_at is None else r.done_at,
        "tokens_done": r.generated,
        "preemptions": r.preemptions,
        "recomputed_tokens": r.recomputed,
        "swapped_tokens": r.swapped_tokens,
        "prefix_hit_tokens": r.hit_tokens,
        "max_gap_ps": max(r.gaps, default=0),
    }


# -------------------------------------------------------------------- the engine's decisions


def requests_of(x: Instance) -> Any:
    """The engine's requests."""
    import numpy as np

    from tileq_engine.prefix_blocks import BlockPaths
    from tileq_engine.requests import Requests

    def column(name: str, dtype: Any = np.int64) -> Any:
        return np.array([r[name] for r in x.requests], dtype=dtype)

    return Requests.from_arrays(
        prompt_tokens=column("prompt"),
        output_tokens=column("output"),
        arrival_ps=column("arrival"),
        predicted_output_tokens=column("predicted"),
        class_index=column("kind"),
        priority=column("priority"),
        tbt_limit_ps=column("tbt_limit"),
        paying=column("paying", bool),
        tenant=np.array([r.get("tenant", 0) for r in x.requests], dtype=np.int64),  # older instances name none
        blocks=BlockPaths.from_lists([r["path"] for r in x.requests], x.hash_tokens) if x.hash_tokens else None,
    )


def config_of(x: Instance) -> Any:
    """The engine's settings; every invariant is recomputed at every iteration."""
    from tileq_engine.config import EngineConfig

    return EngineConfig(
        token_budget=x.budget,
        max_num_seqs=x.max_seqs,
        kv_tokens=x.kv_blocks * BLOCK,
        watermark=(x.watermark + 0.5) / x.kv_blocks if x.watermark else 0.0,
        convention=x.convention,  # type: ignore[arg-type]
        preemption=x.preemption,  # type: ignore[arg-type]
        swap_token_s=x.swap_us_per_token * 1e-6,
        queue_limit=x.queue_limit,
        max_model_tokens=x.longest,
        oversize=x.oversize,  # type: ignore[arg-type]
        stop_iterations=ENDLESS,
        check=True,
        sample_limit=x.samples,
        gap_mode="exact",
        **_extras_of(x),
        prefix_cache=x.hash_tokens > 0,
    )


def _extras_of(x: Instance) -> dict[str, Any]:
    from tileq_engine.backpressure import Backpressure, TbtControl
    from tileq_engine.tenants import Tenants

    names = tuple(f"t{i}" for i in range(len(x.tenants)))
    weights, quotas = tuple(w for w, _ in x.tenants), tuple(q or None for _, q in x.tenants)
    extras: dict[str, Any] = {"reservation": x.reservation, "watch": x.watch}
    if names:
        extras["tenants"] = Tenants(names, weights, quotas)
    if x.pressure is not None:
        action, waiting, blocks, low = x.pressure
        shrunk = low if action == "shrink" else None
        extras["backpressure"] = Backpressure(action, waiting, (blocks - 0.5) / x.kv_blocks, shrunk)  # type: ignore[arg-type]
    if x.control is not None:
        extras["control"] = TbtControl(x.control[0], x.control[1], x.control[2])
    return extras


def engine_run(x: Instance, mode: str) -> Any:
    """The engine's run of `x`; stepped runs are traced."""
    from tileq_engine.registry import policy
    from tileq_engine.simulator import simulate

    config = config_of(x).with_(trace_limit=0 if mode == "compiled" else TRACED)
    return simulate(requests_of(x), policy(x.policy, **x.params), x.time, config, mode=mode)  # type: ignore[arg-type]


def engine_decisions(x: Instance, mode: str) -> Decisions:
    """Its decisions ('compiled' has no trace of jumped iterations: compare fates only)."""
    return decisions_of(engine_run(x, mode))


def decisions_of(run: Any) -> Decisions:
    fates = tuple(_engine_fate(run, i) for i in range(len(run.requests)))
    return Decisions(_iterations(run.trace), fates, _accounts(run.tenants), _causes(run.bottlenecks))


def _accounts(t: Any) -> tuple[tuple[int, ...], ...]:
    if t is None:
        return ()
    rows = zip(t.end_prefilled_tokens, t.end_delivered_tokens, t.end_counter, t.starved_ps, strict=True)
    return tuple(tuple(int(v) for v in row) for row in rows)


def _causes(b: Any) -> tuple[tuple[int, ...], ...]:
    if b is None:
        return ()
    rows = zip(b.cause, b.begin_ps, b.end_ps, b.iterations, b.waiting, strict=True)
    return tuple(tuple(int(v) for v in row) for row in rows)


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
        "swapped_tokens", "max_gap_ps", "prefix_hit_tokens",
    )  # fmt: skip
    return {"reject_reason": int(run.reject_reason[i]), **{n: int(getattr(run, n)[i]) for n in names}}


def smaller(x: Instance, differs: Callable[[Instance], bool]) -> Instance:
    """Drop requests while the two still part: the minimal example for a report."""
    kept = list(x.requests)
    for r in list(kept):
        fewer = [k for k in kept if k is not r]
        if fewer and differs(replace(x, requests=tuple(fewer))):
            kept = fewer
    return replace(x, requests=tuple(kept))

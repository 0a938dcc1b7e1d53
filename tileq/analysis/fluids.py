"""The fluid model of one node: where it rests, how long it takes to drain, how fast it grows beyond capacity."""

from __future__ import annotations

__all__ = ["fluid"]

import math
from typing import Any

from tileq.analysis.answer import Analysis, analysis
from tileq.analysis.machine import machine, one_class
from tileq.words import number, percent, seconds
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import InputError, SolveError, near_matches, nonnegative, positive, positive_int

_POLICIES = ("decode-first", "prefill-first", "prefills-mixed", "rad", "threshold")


def fluid(
    requests: str = "512:64",
    *,
    policy: str = "decode-first",
    rate: float | None = None,
    load: float | None = None,
    token_budget: int = 512,
    residents: int = 128,
    free_slots: int | None = None,
    waiting_tokens: float = 100_000.0,
    horizon: float = 600.0,
    convention: TokenConvention = "engine",
    **of_machine: Any,
) -> Analysis:
    """Return the fluid model's answer for one class: capacity, rest, drain of a backlog, slope under overload.

    Parameters
    ----------
    requests
        "P:O" (lengths or laws).
    policy
        "decode-first", "prefill-first", "prefills-mixed", "rad", "threshold".
    rate, load
        Requests a second, or a share of the fluid capacity (.8 where neither is given; above 1: overload).
    token_budget, residents, free_slots
        Budget (rad: b_lcm), slots, and the threshold's free slots.
    waiting_tokens, horizon
        Prefill tokens that wait at time 0; seconds looked ahead.
    of_machine
        As in `chain`.

    Examples
    --------
    >>> answer = fluid("128:64", time="launch_s=0.01,tile_s=0.03,tile_tokens=128", token_budget=128, residents=32)
    >>> answer.to_dict()["stable"]
    True
    """
    from tileq_theory import fluid as model

    where = machine(**of_machine)
    budget, slots = positive_int("token_budget", token_budget), positive_int("residents", residents)
    traffic = one_class(requests, convention, budget)
    if policy not in _POLICIES:
        raise InputError(f"policy {policy!r} is unknown; {near_matches('policies of the fluid', policy, _POLICIES)}")
    if free_slots is not None and policy != "threshold":
        raise InputError(f"free_slots is given and policy is {policy}; expected it with threshold only")
    rules: dict[str, Any] = {
        "decode-first": model.DecodeFirst,
        "prefill-first": model.PrefillFirst,
        "prefills-mixed": model.PrefillsMixed,
        "rad": lambda: model.Rad(budget),
        "threshold": lambda: model.ExclusiveThreshold(max(1, slots // 4) if free_slots is None else free_slots),
    }
    rule = rules[policy]()
    kv = math.inf if where.setting is None else float(where.setting.kv_tokens)

    def system_at(rate_per_s: float) -> Any:
        return model.FluidSystem(where.time, traffic.demand, rate_per_s, budget, slots, kv)

    capacity = model.fluid_capacity_per_s(system_at(1e-6), rule)
    if rate is not None and load is not None:
        raise InputError("both rate and load are given; expected one of them")
    offered = positive("load", 0.8 if load is None else load) * capacity if rate is None else positive("rate", rate)
    system = system_at(offered)
    start = model.FluidState(waiting_tokens=nonnegative("waiting_tokens", waiting_tokens))
    ahead = positive("horizon", horizon)
    notes = ["the fluid limit leaves out the noise of arrivals: it has no waiting below capacity"]
    try:
        path = model.fluid_path(system, rule, start=start, horizon_s=ahead)
    except SolveError:  # a threshold that lies where the fluid rests is met without end
        path = model.fluid_path(system, rule, start=start, horizon_s=ahead, until_drained=True)
        notes.append("the path meets its threshold without end once nobody waits; it is followed to there")
    rest = model.equilibrium(system, rule)
    drained = path.drained_s
    stable = offered < capacity
    verdict = "stable" if stable else "at its capacity" if offered == capacity else "overloaded"
    answer = {
        "capacity_per_s": capacity,
        "rate_per_s": offered,
        "load": offered / capacity,
        "stable": stable,
        "equilibrium": rest,
        "drained_s": drained,
        "slope_tokens_per_s": path.slope_tokens_per_s(),
        "path": {
            name: getattr(path, name)
            for name in ("time_s", "waiting_tokens", "decoding", "kv_tokens", "backlog_tokens")
        },
    }
    gone = drained is not None and math.isfinite(drained)
    rows = [
        ("capacity", f"{number(capacity)} requests/s under this policy"),
        ("rate", f"{number(offered)} requests/s, load {percent(offered / capacity)}"),
        ("rest", "none: it grows" if rest is None else f"{number(rest.decoding)} decoding, "
         f"{number(rest.waiting_tokens)} prefill tokens waiting, {number(rest.kv_tokens)} KV tokens"),
        ("drain", f"{number(waiting_tokens)} waiting tokens are gone after {seconds(float(drained))}" if gone
         else f"not within {seconds(ahead)}"),
        ("slope", f"{number(path.slope_tokens_per_s())} backlog tokens/s at the end of the path"),
    ]  # fmt: skip
    question = {
        "requests": requests,
        "policy": policy,
        "rate_per_s": rate,
        "load": load,
        "token_budget": budget,
        "residents": slots,
        "free_slots": free_slots,
        "waiting_tokens": waiting_tokens,
        "horizon_s": ahead,
        "convention": convention,
        **where.to_dict(),
    }

    def draw() -> Any:
        most = max(waiting_tokens, 1.0)
        return model.plot_phase_plane(
            system, rule, most_waiting_tokens=most, starts=(start,), horizon_s=ahead
        ).get_figure()

    return analysis(
        "fluid",
        question=question,
        answer=answer,
        headline=f"{policy} on {where.label}: {verdict} in the fluid limit",
        sections=[("Fluid model", rows)],
        provenance=where.provenance(),
        warnings=[*where.warnings, *notes],
        draw=draw,
    )

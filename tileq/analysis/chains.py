"""The exact chain of one node: a small system, an iteration at a time."""

from __future__ import annotations

__all__ = ["chain"]

from typing import Any

from tileq.analysis.answer import Analysis, Section, analysis
from tileq.analysis.machine import Traffic, machine, one_class
from tileq.words import number, percent, seconds
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import InputError, near_matches, positive, positive_int

_RULES = ("decode-first", "prefill-first", "rad", "theta", "static")


def chain(
    requests: str = "512:64",
    *,
    policy: str = "decode-first",
    residents: int = 8,
    rate: float | None = None,
    load: float | None = None,
    token_budget: int | None = None,
    tile_tokens: int | None = None,
    free_slots: int | None = None,
    laws: bool = False,
    convention: TokenConvention = "engine",
    **of_machine: Any,
) -> Analysis:
    """Return the exact behaviour of one replica: Poisson arrivals, one prompt length, geometric outputs.

    Parameters
    ----------
    requests
        "P:O": the prompt's length and the mean of the geometric number of output tokens.
    policy
        "decode-first" (Sarathi, vLLM v1), "prefill-first" (vLLM v0), "rad", "theta", "static".
    residents
        Most requests being served at a time, 1 to 256.
    rate, load
        Requests a second, or the share of the policy's own capacity (.8 where neither is given).
    token_budget, tile_tokens, free_slots
        Of decode-first and prefill-first; of rad (a prompt's length by default); of theta.
    laws
        Quantiles of waiting and TTFT too.
    of_machine
        time, or gpu, model, tp, dtype, kv_dtype, memory_utilisation, times, calibration.

    Examples
    --------
    >>> answer = chain("1:1", time="launch_s=0.5", residents=1, rate=1.2)  # M/D/1
    >>> round(answer.to_dict()["mean_in_system"], 9)
    1.05
    """
    from tileq_theory.chain import ChainSystem, chain_capacity, iteration_chain, ttft_law, wait_time_law
    from tileq_theory.lengths import Geometric

    where = machine(**of_machine)
    traffic = one_class(requests, convention)
    prompt = traffic.prompt_tokens
    _lengths(requests, traffic)
    time, warnings = where.time, list(where.warnings)
    if time.kv_token_s > 0:
        context = traffic.demand.kv_read_tokens / max(traffic.demand.decode_tokens, 1e-300)
        time = time.with_(kv_token_s=0.0, sequence_s=time.sequence_s + time.kv_token_s * context)
        warnings.append(
            f"the chain knows no contexts: reading KV is charged as of the mean context, {context:.0f} tokens"
        )
    system = ChainSystem(
        time=time,
        rule=_rule(policy, int(prompt), positive_int("residents", residents), token_budget, tile_tokens, free_slots),
        residents=residents,
        prompt_tokens=int(prompt),
        outputs=Geometric(mean=traffic.output_tokens),
        convention=convention,
    )
    offered = _offered(rate, load, chain_capacity(system))
    answer = iteration_chain(system, rate_per_s=offered)
    found: dict[str, Any] = dict(answer.to_dict())
    rows = [
        ("rate", f"{number(offered)} requests/s, load {percent(answer.load)} of {number(answer.capacity_per_s)}"),
        ("in system", f"{number(answer.mean_in_system)} on average, 99 % of the time at most "
         f"{answer.in_system_quantile(0.99)}"),
        ("waiting", f"{number(answer.mean_waiting)} requests, {seconds(answer.mean_wait_s)}"),
        ("TTFT", f"{seconds(answer.mean_ttft_s)} on average"),
        ("response", f"{seconds(answer.mean_response_s)} on average"),
        ("idle", percent(answer.idle_share)),
    ]  # fmt: skip
    sections: list[Section] = [("Means over time, exact", rows)]
    if laws:
        found["laws"] = {}
        for name, law in (("wait", wait_time_law(answer)), ("ttft", ttft_law(answer))):
            found["laws"][name] = told = law.to_dict()
            quantiles: Any = told["quantiles_s"]
            sections.append((f"Quantiles of {name}", [(k, seconds(v)) for k, v in quantiles.items()]))
    sections.append(
        (
            "Proof",
            [
                ("states", f"{answer.states}, {answer.method}"),
                ("residual", f"{answer.residual:.1g}"),
                ("lost tail", f"at most {answer.lost_tail:.1g}"),
            ],
        )
    )
    question = {
        "requests": requests,
        "policy": policy,
        "residents": residents,
        "rate_per_s": rate,
        "load": load,
        "token_budget": token_budget,
        "tile_tokens": tile_tokens,
        "free_slots": free_slots,
        "convention": convention,
        **where.to_dict(),
    }
    return analysis(
        "chain",
        question=question,
        answer=found,
        headline=f"{policy} on {where.label}: {requests} tokens, {residents} residents",
        sections=sections,
        provenance=where.provenance(),
        warnings=warnings,
    )


def _lengths(requests: str, traffic: Traffic) -> None:
    """Refuse laws that the chain does not have, rather than answer for others of the same mean."""
    from tileq_theory.lengths import Fixed, Geometric, Independent

    laws = traffic.requests.lengths
    if not isinstance(laws, Independent) or not isinstance(laws.prompt, Fixed):
        raise InputError(f"requests are {requests!r}; expected one prompt length, as in 512:64")
    output = laws.output
    if not isinstance(output, Fixed) and not (isinstance(output, Geometric) and output.cap is None):
        raise InputError(f"requests are {requests!r}; expected the mean of a geometric output, as in 512:64")


def _offered(rate: float | None, load: float | None, capacity: float) -> float:
    if rate is not None and load is not None:
        raise InputError("both rate and load are given; expected one of them")
    if rate is not None:
        return positive("rate", rate)
    share = 0.8 if load is None else positive("load", load)
    if share >= 1:
        raise InputError(f"load is {load!r}; expected a share below 1")
    return share * capacity


def _rule(
    policy: str, prompt: int, residents: int, budget: int | None, tile: int | None, free_slots: int | None
) -> Any:
    from tileq_theory.chain import DecodeFirst, PrefillFirst, RadRule, ThresholdRule

    if policy not in _RULES:
        raise InputError(f"policy {policy!r} is unknown; {near_matches('policies of the chain', policy, _RULES)}")
    for name, value, of in (
        ("token_budget", budget, ("decode-first", "prefill-first")),
        ("tile_tokens", tile, ("rad",)),
        ("free_slots", free_slots, ("theta",)),
    ):
        if value is not None and policy not in of:
            raise InputError(f"{name} is given and policy is {policy}; expected it with {' or '.join(of)} only")
    if policy == "decode-first":
        return DecodeFirst(budget)
    if policy == "prefill-first":
        return PrefillFirst(budget)
    if policy == "rad":
        return RadRule(prompt if tile is None else tile)
    if policy == "static":
        return ThresholdRule(residents)
    slots = max(1, residents // 4) if free_slots is None else free_slots
    return ThresholdRule(slots, slots)

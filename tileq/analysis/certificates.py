"""Certificates: a Lyapunov function, or the direction that grows, proved in exact arithmetic."""

from __future__ import annotations

__all__ = ["certificate"]

from typing import Any

from tileq.analysis.answer import Analysis, analysis
from tileq.analysis.machine import DEFAULTS, Machine, Traffic, machine, one_class
from tileq.words import number
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import InputError, near_matches, positive, positive_int

_POLICIES = ("rad", "work-conserving", "exclusive", "rybko-stolyar", "rybko-stolyar-entry-first", "lu-kumar")


def certificate(
    requests: str = "512:64",
    *,
    policy: str = "work-conserving",
    rate: float = 1.0,
    token_budget: int = 512,
    residents: int = 128,
    services: tuple[float, ...] | None = None,
    convention: TokenConvention = "engine",
    **of_machine: Any,
) -> Analysis:
    """Return a Foster-Lyapunov certificate of a policy's fluid drifts, or of a classical priority network.

    Parameters
    ----------
    requests, token_budget, residents, of_machine
        Of a node: as in `fluid`. token_budget is the tile of rad.
    policy
        "rad", "work-conserving", "exclusive"; or the networks "rybko-stolyar" (exit classes first),
        "rybko-stolyar-entry-first", "lu-kumar".
    rate
        Requests a second (of each route in a network).
    services
        Mean service times of a network's four classes, seconds.

    Examples
    --------
    >>> certificate(policy="rybko-stolyar", rate=1.0, services=(0.1, 0.6, 0.1, 0.6)).to_dict()["verdict"]
    'unstable'
    """
    from tileq_theory import certificates as theory

    offered = positive("rate", rate)
    if policy not in _POLICIES:
        raise InputError(f"policy {policy!r} is unknown; {near_matches('certificates', policy, _POLICIES)}")
    question: dict[str, Any] = {"policy": policy, "rate_per_s": offered}
    provenance: dict[str, Any] = {}
    warnings: list[str] = []
    if policy in ("rad", "work-conserving", "exclusive"):
        if services is not None:
            raise InputError(f"services are given and policy is {policy}; expected them with a network only")
        where = machine(**of_machine)
        traffic = one_class(requests, convention, positive_int("token_budget", token_budget))
        common: dict[str, Any] = {
            "rate_per_s": offered,
            "prefill_tokens": traffic.demand.prefill_tokens,
            "decode_tokens": traffic.demand.decode_tokens,
            "attention_pairs": traffic.demand.attention_pairs,
            "kv_read_tokens": traffic.demand.kv_read_tokens,
        }
        residents, notes = _resident(residents, traffic, where)
        if policy == "rad":
            model = theory.rad_modes(where.time, **common, b_col=residents, b_lcm=token_budget)
        elif policy == "exclusive":
            model = theory.exclusive_modes(where.time, **common, token_budget=token_budget, residents=residents)
        else:
            model = theory.work_conserving_modes(where.time, **common, token_budget=token_budget, residents=residents)
        question |= {
            "requests": requests,
            "token_budget": token_budget,
            "residents": residents,
            "convention": convention,
            **where.to_dict(),
        }
        provenance, warnings = where.provenance(), [*where.warnings, *notes]
        label = where.label
    else:
        for name, value, usual in (
            ("requests", requests, "512:64"),
            ("token_budget", token_budget, 512),
            ("residents", residents, 128),
            ("convention", convention, "engine"),
            *((name, value, DEFAULTS.get(name)) for name, value in of_machine.items()),
        ):
            if value != usual:
                raise InputError(f"{name} is given and policy is {policy}, a network; expected it with a node only")
        given = (0.1, 0.6, 0.1, 0.6) if services is None else tuple(services)
        if len(given) != 4:
            raise InputError(f"services has {len(given)} numbers; expected 4, one a class")
        question["services_s"] = given
        label = "a network of two stations"
        network = (
            theory.lu_kumar(rate=offered, services=given)
            if policy == "lu-kumar"
            else theory.rybko_stolyar(rates=(offered, offered), services=given, exit_first=policy == "rybko-stolyar")
        )
        model = network.modes()
    found = theory.certify(model)
    verified = found.verify(model)
    rows = [
        ("verdict", found.verdict),
        ("margin", number(float(found.margin))),
        ("verified", "yes, in exact arithmetic" if verified else "no"),
    ]
    for place, weights in enumerate(found.weights):
        text = ", ".join(f"{name} {number(float(w))}" for name, w in zip(model.coordinates, weights, strict=True))
        rows.append((f"function {place + 1}", text))
    if found.growth is not None:
        pairs = zip(model.coordinates, found.growth, strict=True)
        rows.append(("grows", ", ".join(f"{name} {number(float(w))}" for name, w in pairs)))
    if found.cycle is not None:
        rows.append(("cycle", f"returns {number(float(found.cycle.factor))} times as large"))
    return analysis(
        "certificate",
        question=question,
        answer={**found.to_dict(), "verified": verified, "coordinates": model.coordinates},
        headline=f"{policy} on {label}: {found.verdict}",
        sections=[("Certificate of the fluid model", rows)],
        provenance=provenance,
        warnings=warnings,
    )


def _resident(residents: int, traffic: Traffic, where: Machine) -> tuple[int, list[str]]:
    """Return the requests served at a time that slots and memory allow, and what to know about it."""
    slots, notes = positive_int("residents", residents), []
    if where.time.kv_token_s > 0:
        notes.append("the certificate knows no contexts: reading KV is charged as of the mean context")
    if where.setting is not None:
        whole = traffic.demand.prefill_tokens + traffic.demand.decode_tokens
        if where.setting.kv_tokens < whole:
            raise InputError(
                f"the KV memory holds {where.setting.kv_tokens} tokens and a request {whole:g}; expected room for one"
            )
        context = (
            traffic.demand.kv_read_tokens / traffic.demand.decode_tokens if traffic.demand.decode_tokens else whole
        )
        fits = max(1, int(where.setting.kv_tokens // context))
        if fits < slots:
            notes.append(f"{fits} requests of mean context fit into the KV memory: so many are taken for residents")
            slots = fits
    return slots, notes

"""Networks of engines: loads, bottleneck, latency, stability under a priority order."""

from __future__ import annotations

__all__ = ["network"]

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from tileq.analysis.answer import Analysis, Section, analysis
from tileq.words import number, percent, seconds
from tileq_theory.errors import InputError, SolveError, positive

if TYPE_CHECKING:
    from tileq_theory.networks import AgentNetwork


def network(
    file: str | PathLike[str] | AgentNetwork | None = None,
    *,
    rate: float = 1.0,
    priority: Sequence[str] | None = None,
) -> Analysis:
    """Return what a network of agents' steps over engines does.

    Parameters
    ----------
    file
        JSON: {"engines": {name: tokens a second}, "steps": [{"name", "engine", "work_tokens", "arrivals_per_s"}],
        "routing": [[from, to, share], ...]}, or an `AgentNetwork`. None: the network of Rybko and Stolyar.
    rate
        All arrivals times this.
    priority
        Steps, most urgent first: stability of the fluid under the order too.

    Examples
    --------
    >>> order = ["ab.2", "ba.2", "ab.1", "ba.1"]
    >>> network(rate=0.9 * 768 / 608, priority=order).to_dict()["priority"]["virtual_station"]["steps"]
    ['ab.2', 'ba.2']
    """
    from tileq_theory.networks import AgentNetwork, network_latency, rybko_stolyar

    if file is None:
        net, label = rybko_stolyar(rate_per_s=1.0), "Rybko-Stolyar network"
    elif isinstance(file, AgentNetwork):
        net, label = file, "network"
    else:
        net, label = _read(file), str(file)
    net = net.scaled(positive("rate", rate))
    loads = net.loads
    answer: dict[str, Any] = {
        "loads": loads,
        "bottleneck": net.bottleneck,
        "capacity_scale": net.capacity_scale,
        "rates_per_s": dict(zip((s.name for s in net.steps), net.rates_per_s, strict=True)),
        "response_s": None,
        "priority": None,
    }
    rows = [(name, f"load {percent(load)}") for name, load in loads.items()]
    rows.append(("bottleneck", f"{net.bottleneck}: all rates times {number(net.capacity_scale)} saturate it"))
    warnings = []
    if max(loads.values()) < 1:
        try:
            answer["response_s"] = network_latency(net).response_s
        except InputError as error:  # loads and stability need no product form
            warnings.append(f"no response time: {error}")
        else:
            rows.append(("response", f"{seconds(answer['response_s'])} in all, engines sharing time (product form)"))
    else:
        warnings.append("a load of 1 or more: the network is unstable under every order")
    sections: list[Section] = [("Loads", rows)]
    if priority is not None:
        answer["priority"], told = _priority(net, list(priority))
        sections.append((f"Priority {' > '.join(priority)}", told))
    return analysis(
        "network",
        question={"file": None if file is None else label, "rate": rate, "priority": priority},
        answer=answer,
        headline=f"{label}: {net.bottleneck} is the bottleneck",
        sections=sections,
        warnings=warnings,
    )


def _priority(net: AgentNetwork, order: list[str]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    from tileq_theory.networks import fluid_path, priority_certificate, virtual_station

    station = virtual_station(net, order)
    found: dict[str, Any] = {"order": order, "virtual_station": {"steps": station.steps, "load": station.load}}
    rows = [("virtual station", f"{', '.join(station.steps) or 'none'}: load {percent(station.load)}")]
    try:
        certified = priority_certificate(net, order)
    except SolveError as error:
        found["certificate"] = None
        rows.append(("certificate", str(error)))
    else:
        found["certificate"] = {
            "stable": certified.stable,
            "margin": certified.margin,
            "weights": dict(zip((step.name for step in net.steps), certified.weights, strict=True)),
        }
        rows.append(("certificate", "stable, proved in exact arithmetic" if certified.stable else "no linear one"))
    # a fluid that grows may do so from one start and not from another: each step in turn
    ends = {}
    for step in net.steps:
        path = fluid_path(net, order, {step.name: 1.0}, growth_limit=1e3, corners=4000)
        ends[step.name] = {"end": path.end, "total": path.total[-1]}
    found["paths"] = ends
    growing = [name for name, path in ends.items() if path["end"] == "growing"]
    rows.append(("fluid paths", f"grow from {', '.join(growing)}" if growing else "drain from every single step"))
    return found, rows


def _read(path: str | PathLike[str]) -> AgentNetwork:
    from pathlib import Path

    from tileq_theory.hardware.files import read_json_object
    from tileq_theory.networks import AgentNetwork, Step

    where = Path(path).expanduser()
    held = read_json_object(where)
    unknown = set(held) - {"engines", "steps", "routing"}
    if unknown or not isinstance(held.get("engines"), dict) or not isinstance(held.get("steps"), list):
        raise InputError(
            f"{where}: expected an object of engines (name: tokens/s), steps (a list) and routing (a list)"
        )
    try:
        steps = [Step(**step) for step in held["steps"]]
        follows = {(str(a), str(b)): float(share) for a, b, share in held.get("routing", [])}
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise InputError(f"{where}: {error}") from None
        raise InputError(
            f"{where}: steps are objects of name, engine, work_tokens and arrivals_per_s, routing a list of "
            f"[from, to, share]; {error}"
        ) from None
    return AgentNetwork(held["engines"], steps, follows)

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
    if not net.arrivals_per_s.any():
        raise InputError(f"{label}: arrivals_per_s is 0 at every step; expected arrivals at one at least")
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
        steps = [Step(**_step(place, step)) for place, step in enumerate(held["steps"])]
        engines = {name: _number(f"rate of engine {name!r}", rate) for name, rate in held["engines"].items()}
        return AgentNetwork(engines, steps, _routing(held.get("routing", [])))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _step(place: int, given: object) -> dict[str, Any]:
    """Return the fields of a step as the file states them."""
    asked = ("name", "engine", "work_tokens")
    if not isinstance(given, dict) or set(given) - {*asked, "arrivals_per_s"} or not set(asked) <= set(given):
        raise InputError(
            f"steps[{place}] is {given!r}; expected an object of name, engine, work_tokens and, if any, arrivals_per_s"
        )
    for key in ("name", "engine"):
        if not isinstance(given[key], str):
            raise InputError(f"{key} of steps[{place}] is {given[key]!r}; expected a text")
    return {k: v if k in ("name", "engine") else _number(f"{k} of step {given['name']!r}", v) for k, v in given.items()}


def _routing(given: object) -> dict[tuple[str, str], float]:
    """Return the mean number of next steps by (step, next step)."""
    if not isinstance(given, list):
        raise InputError(f"routing is {given!r}; expected a list of [from, to, share]")
    follows: dict[tuple[str, str], float] = {}
    for place, row in enumerate(given):
        if not isinstance(row, list) or len(row) != 3 or not all(isinstance(name, str) for name in row[:2]):
            raise InputError(f"routing[{place}] is {row!r}; expected [from, to, share]")
        pair = (row[0], row[1])
        if pair in follows:
            raise InputError(f"routing has {row[0]!r} to {row[1]!r} twice; expected one share for them")
        follows[pair] = _number(f"share of routing[{place}]", row[2])
    return follows


def _number(name: str, value: object) -> float:
    """Return a number that the file states as one, not as a text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{name} is {value!r}; expected a number")
    return float(value)

"""Builders of the common agent workflows: chains, loops, fork-join, and the two-route network of Rybko and Stolyar."""

from __future__ import annotations

__all__ = ["chain", "fork_join", "loop", "merge", "rybko_stolyar"]

from collections.abc import Mapping, Sequence

from tileq_theory.errors import InputError, finite, positive
from tileq_theory.networks.model import AgentNetwork, Step

Visit = tuple[str, float]


def chain(name: str, visits: Sequence[Visit], *, rate_per_s: float, engines: Mapping[str, float]) -> AgentNetwork:
    """Return requests that visit (engine, mean tokens) pairs in order; steps are named name.1, name.2, ...

    Examples
    --------
    >>> chain("r", [("A", 64.0), ("B", 544.0)], rate_per_s=1.0, engines={"A": 768.0, "B": 768.0}).bottleneck
    'B'
    """
    if not visits:
        raise InputError(f"chain {name!r} has no visits; expected at least one (engine, tokens) pair")
    steps = [
        Step(f"{name}.{i}", engine, tokens, rate_per_s if i == 1 else 0.0)
        for i, (engine, tokens) in enumerate(visits, start=1)
    ]
    return AgentNetwork(engines, steps, {(f"{name}.{i}", f"{name}.{i + 1}"): 1.0 for i in range(1, len(steps))})


def loop(
    name: str, visits: Sequence[Visit], *, again: float, rate_per_s: float, engines: Mapping[str, float]
) -> AgentNetwork:
    """Return a chain that starts over with probability `again` in [0, 1): an agent that retries until it succeeds.

    Raises
    ------
    InputError
        `again` outside [0, 1).

    Examples
    --------
    >>> loop("r", [("A", 64.0)], again=0.75, rate_per_s=1.0, engines={"A": 768.0}).rates_per_s.tolist()
    [4.0]
    """
    share = finite("again", again)
    if not 0 <= share < 1:
        raise InputError(f"again is {again!r}; expected a probability in [0, 1): with 1 nobody ever leaves")
    base = chain(name, visits, rate_per_s=rate_per_s, engines=engines)
    follows = dict(base.follows)
    last, first = f"{name}.{len(visits)}", f"{name}.1"
    follows[last, first] = follows.get((last, first), 0.0) + share
    return AgentNetwork(engines, base.steps, follows)


def fork_join(
    name: str,
    first: Visit,
    branches: Sequence[Visit],
    last: Visit,
    *,
    rate_per_s: float,
    engines: Mapping[str, float],
) -> AgentNetwork:
    """Return a step that starts all branches at once and a last step that waits for all of them.

    Examples
    --------
    >>> net = fork_join("r", ("A", 10.0), [("B", 20.0), ("B", 30.0)], ("A", 5.0), rate_per_s=2.0,
    ...                 engines={"A": 100.0, "B": 200.0})
    >>> {name: round(load, 12) for name, load in net.loads.items()}
    {'A': 0.3, 'B': 0.5}
    """
    if not branches:
        raise InputError(f"fork {name!r} has no branches; expected at least one (engine, tokens) pair")
    positive("rate_per_s", rate_per_s)
    steps = [Step(f"{name}.first", *first, rate_per_s), Step(f"{name}.last", *last)]
    follows = {}
    for i, (engine, tokens) in enumerate(branches, start=1):
        steps.append(Step(f"{name}.{i}", engine, tokens))
        follows[f"{name}.first", f"{name}.{i}"] = 1.0
        follows[f"{name}.{i}", f"{name}.last"] = 1 / len(branches)
    return AgentNetwork(engines, steps, follows)


def merge(networks: Sequence[AgentNetwork]) -> AgentNetwork:
    """Return all steps of several networks on common engines; an engine must have the same rate in each.

    Examples
    --------
    >>> a = chain("a", [("A", 50.0)], rate_per_s=1.0, engines={"A": 100.0})
    >>> b = chain("b", [("A", 10.0)], rate_per_s=1.0, engines={"A": 100.0})
    >>> merge([a, b]).loads
    {'A': 0.6}
    """
    engines: dict[str, float] = {}
    for network in networks:
        for name, rate in network.engines.items():
            if engines.setdefault(name, rate) != rate:
                raise InputError(f"engine {name!r} has rates {engines[name]:g} and {rate:g}; expected one rate")
    steps = [step for network in networks for step in network.steps]
    follows = {pair: count for network in networks for pair, count in network.follows.items()}
    return AgentNetwork(engines, steps, follows)


def rybko_stolyar(
    *,
    rate_per_s: float,
    first_tokens: float = 64.0,
    exit_tokens: float = 544.0,
    engine_tokens_per_s: float = 768.0,
) -> AgentNetwork:
    """Return two opposite routes, A then B and B then A, each with a short first and a long last visit.

    The defaults are the instance of Dai, Deng, Li, Peng (arXiv 2504.07347, section 5.4): sizes (32, 32) then
    (512, 32) tokens, batches of 768 in one second.

    Examples
    --------
    >>> {name: round(load, 3) for name, load in rybko_stolyar(rate_per_s=0.9 * 768 / 608).loads.items()}
    {'A': 0.9, 'B': 0.9}
    """
    engines = {"A": engine_tokens_per_s, "B": engine_tokens_per_s}
    there = chain("ab", [("A", first_tokens), ("B", exit_tokens)], rate_per_s=rate_per_s, engines=engines)
    back = chain("ba", [("B", first_tokens), ("A", exit_tokens)], rate_per_s=rate_per_s, engines=engines)
    return merge([there, back])

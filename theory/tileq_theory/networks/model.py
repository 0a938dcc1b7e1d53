r"""A network of engines that agents' steps travel through.

A step k (a class of work, such as "plan at the large model") runs at one engine and needs on average m_k tokens there.
Step k is followed on average by N_kl steps l: N_kl is a routing probability where one of several follows, 1 for each
branch of a fork, and 1/j for each of the j branches that a join waits for. External arrivals have rate alpha_k.

    lambda = alpha + N^T lambda      (traffic equations)

has one non-negative solution exactly when the spectral radius of N is below 1.
"""

from __future__ import annotations

__all__ = ["AgentNetwork", "Step"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, near_matches, nonnegative, positive

PerStep = Float[np.ndarray, "step"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Parameters
    ----------
    name, engine
        Names.
    work_tokens
        m_k > 0, mean tokens of a visit (prefill and decode together), in the unit of the engine's rate.
    arrivals_per_s
        alpha_k >= 0, arrivals from outside.
    """

    name: str
    engine: str
    work_tokens: float
    arrivals_per_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "work_tokens", positive(f"work_tokens of step {self.name!r}", self.work_tokens))
        rate = nonnegative(f"arrivals_per_s of step {self.name!r}", self.arrivals_per_s)
        object.__setattr__(self, "arrivals_per_s", rate)


@dataclass(frozen=True, slots=True)
class AgentNetwork:
    """Engines, steps and what follows what.

    Parameters
    ----------
    engines
        Tokens per second of each engine, above 0 (b_max/t(b_max) for one that runs full batches).
    steps
        At least one, names unique, engines known.
    follows
        (step, next step) -> mean number of next steps that follow one step, 0 or more.

    Raises
    ------
    InputError
        Unknown or repeated names, numbers outside their domain, or a spectral radius of 1 or more.

    Examples
    --------
    >>> chat = AgentNetwork({"A": 100.0}, [Step("turn", "A", 20.0, arrivals_per_s=1.0)], {("turn", "turn"): 0.5})
    >>> chat.rates_per_s.tolist()
    [2.0]
    """

    engines: Mapping[str, float]
    steps: Sequence[Step]
    follows: Mapping[tuple[str, str], float]

    def __post_init__(self) -> None:
        engines = {name: positive(f"rate of engine {name!r}", rate) for name, rate in self.engines.items()}
        object.__setattr__(self, "engines", engines)
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "follows", dict(self.follows))
        names = [s.name for s in self.steps]
        if not names:
            raise InputError("a network of no steps was given; expected at least one")
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise InputError(f"step name {twice[0]!r} is used more than once; give each step its own")
        for step in self.steps:
            if step.engine not in engines:
                what = near_matches("engines", step.engine, engines)
                raise InputError(f"step {step.name!r} runs at engine {step.engine!r}, which is not known; {what}")
        for (a, b), count in self.follows.items():
            for name in (a, b):
                if name not in names:
                    raise InputError(f"step {name!r} in follows is not known; {near_matches('steps', name, names)}")
            nonnegative(f"follows[{a!r}, {b!r}]", count)
        radius = self.spectral_radius
        if radius >= 1 - 1e-12:
            raise InputError(
                f"follows has spectral radius {radius:.6g}; expected it below 1: some steps breed steps without end"
            )

    @classmethod
    def from_graph(cls, graph: Any, engines: Mapping[str, float]) -> AgentNetwork:
        """Return the network of a networkx.DiGraph.

        Node attributes: engine, work_tokens and (optional) arrivals_per_s. Edge attribute: count, the mean number of
        next steps (a routing probability); 1 where absent.

        Examples
        --------
        >>> import networkx as nx
        >>> g = nx.DiGraph()
        >>> g.add_node("plan", engine="A", work_tokens=50.0, arrivals_per_s=1.0)
        >>> g.add_node("act", engine="B", work_tokens=10.0)
        >>> g.add_edge("plan", "act", count=2.0)
        >>> AgentNetwork.from_graph(g, {"A": 100.0, "B": 100.0}).loads
        {'A': 0.5, 'B': 0.2}
        """
        steps = []
        for name, data in graph.nodes(data=True):
            missing = [key for key in ("engine", "work_tokens") if key not in data]
            if missing:
                raise InputError(f"node {name!r} has no attribute {missing[0]!r}; expected engine and work_tokens")
            steps.append(Step(str(name), data["engine"], data["work_tokens"], data.get("arrivals_per_s", 0.0)))
        follows = {(str(a), str(b)): data.get("count", 1.0) for a, b, data in graph.edges(data=True)}
        return cls(engines, steps, follows)

    def to_graph(self) -> Any:
        """Return the network as a networkx.DiGraph with the attributes of `from_graph`, and rate and load by node."""
        import networkx as nx

        graph = nx.DiGraph()
        for step, rate in zip(self.steps, self.rates_per_s, strict=True):
            graph.add_node(
                step.name,
                engine=step.engine,
                work_tokens=step.work_tokens,
                arrivals_per_s=step.arrivals_per_s,
                rate_per_s=float(rate),
            )
        for (a, b), count in self.follows.items():
            graph.add_edge(a, b, count=count)
        return graph

    # ------------------------------------------------------------------ arrays

    @property
    def next_matrix(self) -> Float[np.ndarray, "step next"]:
        """N_kl."""
        index = {s.name: i for i, s in enumerate(self.steps)}
        matrix = np.zeros((len(index), len(index)))
        for (a, b), count in self.follows.items():
            matrix[index[a], index[b]] = count
        return matrix

    @property
    def spectral_radius(self) -> float:
        """Largest modulus of an eigenvalue of N."""
        return float(np.abs(np.linalg.eigvals(self.next_matrix)).max())

    @property
    def arrivals_per_s(self) -> PerStep:
        """alpha_k."""
        return np.array([s.arrivals_per_s for s in self.steps])

    @property
    def service_s(self) -> PerStep:
        """Seconds that a visit keeps its engine busy, m_k over the engine's rate."""
        return np.array([s.work_tokens / self.engines[s.engine] for s in self.steps])

    @property
    def rates_per_s(self) -> PerStep:
        """lambda_k, visits per second, from the traffic equations."""
        n = len(self.steps)
        out: PerStep = np.maximum(np.linalg.solve(np.eye(n) - self.next_matrix.T, self.arrivals_per_s), 0.0)
        return out

    @property
    def loads(self) -> dict[str, float]:
        """rho_i = sum over the steps of engine i of lambda_k m_k / rate_i: nominal load of each engine."""
        busy = dict.fromkeys(self.engines, 0.0)
        for step, work in zip(self.steps, self.rates_per_s * self.service_s, strict=True):
            busy[step.engine] += float(work)
        return busy

    @property
    def bottleneck(self) -> str:
        """Engine of the largest load (the first named among equals)."""
        loads = self.loads
        return max(loads, key=lambda name: loads[name])

    @property
    def capacity_scale(self) -> float:
        """Factor by which all arrivals may grow until the bottleneck is full; inf without arrivals.

        No policy is stable beyond it. Below it a policy that is work-conserving can still be unstable: see
        `virtual_stations` and `fluid_path`.
        """
        worst = max(self.loads.values())
        return 1 / worst if worst > 0 else float("inf")

    def scaled(self, factor: float) -> AgentNetwork:
        """Return the network with all arrivals multiplied by a factor above 0."""
        f = positive("factor", factor)
        steps = [Step(s.name, s.engine, s.work_tokens, f * s.arrivals_per_s) for s in self.steps]
        return AgentNetwork(self.engines, steps, self.follows)

    def order(self, priority: Mapping[str, Sequence[str]] | Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Return step indices of each engine, first served first, from names by engine or one list over all steps.

        Raises
        ------
        InputError
            A step that is missing, repeated or at another engine.
        """
        if not isinstance(priority, Mapping):
            ranked = list(priority)
            by_name = {s.name: s.engine for s in self.steps}
            for name in ranked:
                if name not in by_name:
                    raise InputError(f"step {name!r} in priority is not known; {near_matches('steps', name, by_name)}")
            priority = {e: [n for n in ranked if by_name[n] == e] for e in self.engines}
        index = {s.name: i for i, s in enumerate(self.steps)}
        out = {}
        for engine in self.engines:
            here = {s.name for s in self.steps if s.engine == engine}
            given = list(priority.get(engine, ()))
            if sorted(given) != sorted(here):
                raise InputError(f"priority of engine {engine!r} is {given}; expected each of {sorted(here)} once")
            out[engine] = tuple(index[name] for name in given)
        return out

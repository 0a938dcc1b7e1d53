"""What a cluster is made of: nodes, their failures, the routers and the link between the pools."""

from __future__ import annotations

__all__ = ["ON_FULL", "ROLES", "Cluster", "Failure", "Node"]

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from tileq_engine.cluster.routers import Router, router
from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_theory.disaggregation import KvLink
from tileq_theory.errors import (
    InputError,
    instance,
    near_matches,
    nonnegative,
    nonnegative_int,
    positive,
    positive_int,
    sequence,
)
from tileq_theory.iteration_time import IterationTime

Role = Literal["both", "prefill", "decode"]
OnFull = Literal["reject", "reroute", "hold"]
ROLES: tuple[Role, ...] = ("both", "prefill", "decode")
ON_FULL: tuple[OnFull, ...] = ("reject", "reroute", "hold")
_DECODE_ROUTERS = ("random", "round_robin", "jsq", "least_work", "most_free", "power_of_two")
_MOST_NODES = 100_000


@dataclass(frozen=True, slots=True)
class Node:
    """One kind of node, `count` of it.

    Parameters
    ----------
    name
        For tables and failures; the replicas of a node with `count` above 1 are called "name-0", "name-1", ...
    time
        Its iteration time.
    policy
        Its policy, or the name of one.
    config
        Its engine's settings; a bound of the run belongs to `simulate_cluster`. `queue_limit`: see `Cluster.on_full`.
    role
        "both" phases, or "prefill" or "decode" alone.
    count
        Replicas.
    weight
        What routers divide its load by, and give it requests in proportion to.
    start_s
        When it comes up first.
    warm_s, warm_factor
        For so many seconds after each start its iterations take so many times as long (1 or more).
    mtbf_s, mttr_s
        Means of the exponential times until it fails and until it is up again; None: it never fails, or never comes
        back. Drawn until the last arrival.
    tenants
        Whom the router "tenant" sends here; empty: everybody.
    """

    name: str
    time: IterationTime
    policy: Policy | str = "sarathi"
    config: EngineConfig = field(default_factory=EngineConfig)
    role: Role = "both"
    count: int = 1
    weight: float = 1.0
    start_s: float = 0.0
    warm_s: float = 0.0
    warm_factor: float = 1.0
    mtbf_s: float | None = None
    mttr_s: float | None = None
    tenants: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"a node's name is {self.name!r}; expected a word")
        who = f"node {self.name}"
        instance(f"time of {who}", self.time, IterationTime)
        instance(f"config of {who}", self.config, EngineConfig)
        if isinstance(self.policy, str):
            from tileq_engine.registry import policy

            object.__setattr__(self, "policy", policy(self.policy))
        instance(f"policy of {who}", self.policy, Policy)
        if not isinstance(self.role, str) or self.role not in ROLES:
            raise InputError(f"role of {who} is {self.role!r}; {near_matches('roles', str(self.role), ROLES)}")
        object.__setattr__(self, "count", positive_int(f"count of {who}", self.count))
        object.__setattr__(self, "weight", positive(f"weight of {who}", self.weight))
        for name in ("start_s", "warm_s"):
            nonnegative(f"{name} of {who}", getattr(self, name))
        for name in ("mtbf_s", "mttr_s"):
            if getattr(self, name) is not None:
                positive(f"{name} of {who}", getattr(self, name))
        if not 1 <= positive(f"warm_factor of {who}", self.warm_factor) <= 1000:
            raise InputError(f"warm_factor of {who} is {self.warm_factor!r}; expected a number in [1, 1000]")
        if self.mttr_s is not None and self.mtbf_s is None:
            raise InputError(f"mttr_s of {who} is given without mtbf_s; a node that never fails is not repaired")
        for bound in ("stop_time_s", "stop_backlog", "stop_iterations"):
            if getattr(self.config, bound) is not None:
                raise InputError(
                    f"config of {who} sets {bound}; a cluster's run is bounded by simulate_cluster(stop_time_s=...)"
                )
        given = sequence(f"tenants of {who}", self.tenants, "numbers of tenants")
        tenants = tuple(nonnegative_int(f"a tenant of {who}", t) for t in given)
        object.__setattr__(self, "tenants", tenants)

    @property
    def replicas(self) -> tuple[Node, ...]:
        """The single nodes it stands for."""
        if self.count == 1:
            return (self,)
        return tuple(replace(self, name=f"{self.name}-{k}", count=1) for k in range(self.count))

    def to_dict(self) -> dict[str, Any]:
        """Return everything it was made with, as plain data."""
        from tileq_engine.run_raw import plain

        names = ("role", "count", "weight", "start_s", "warm_s", "warm_factor", "mtbf_s", "mttr_s", "tenants")
        made = {name: plain(getattr(self, name)) for name in names}
        settings = {"policy": plain(self.policy), "time": plain(self.time), "config": plain(self.config)}
        return {"name": self.name, **made, **settings}


@dataclass(frozen=True, slots=True)
class Failure:
    """A planned failure of one replica, by its name, at `at_s`; up again at `back_s` (None: never)."""

    node: str
    at_s: float
    back_s: float | None = None

    def __post_init__(self) -> None:
        nonnegative(f"at_s of the failure of {self.node}", self.at_s)
        if self.back_s is not None and not nonnegative("back_s", self.back_s) > self.at_s:
            raise InputError(f"back_s of the failure of {self.node} is {self.back_s!r}; expected after {self.at_s!r}")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes behind a router, and the link between their pools.

    Parameters
    ----------
    nodes
        At least one that can prefill; with a node of role "prefill", one of role "decode" too, and the other way round.
    router
        Chooses among the nodes that prefill ("both" and "prefill"); its name stands for it with its defaults.
    decode_router
        Chooses among the nodes of role "decode" that have room, for a request handed over.
    link
        Carries KV from prefill to decode nodes.
    on_full
        What happens to a request for a node whose `queue_limit` is reached: "reject" it there, "reroute" it to the
        node of the shortest queue that has room (rejected where none has), or "hold" it at the router until one has.
    rebalance_s, rebalance_gap
        Global placement step: every so many seconds waiting requests that have not run move from the longest queue to
        the shortest while they differ by at least so many requests (by weight).
    failures
        Planned failures, beside those that the nodes' own mtbf_s draws.
    """

    nodes: tuple[Node, ...]
    router: Router
    decode_router: Router
    link: KvLink | None
    on_full: OnFull
    rebalance_s: float | None
    rebalance_gap: int
    failures: tuple[Failure, ...]

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        router: Router | str = "jsq",
        decode_router: Router | str = "jsq",
        link: KvLink | None = None,
        on_full: OnFull = "reject",
        rebalance_s: float | None = None,
        rebalance_gap: int = 2,
        failures: Sequence[Failure] = (),
    ) -> None:
        put = object.__setattr__
        put(self, "nodes", sequence("nodes of the cluster", nodes, "nodes"))
        put(self, "router", _router(router))
        put(self, "decode_router", _router(decode_router))
        put(self, "link", link)
        put(self, "on_full", on_full)
        put(self, "rebalance_s", None if rebalance_s is None else positive("rebalance_s", rebalance_s))
        put(self, "rebalance_gap", positive_int("rebalance_gap", rebalance_gap))
        put(self, "failures", sequence("failures of the cluster", failures, "failures"))
        self._check()

    def _check(self) -> None:
        if not self.nodes:
            raise InputError("a cluster has no nodes; expected at least one")
        for node in self.nodes:
            instance("a node of the cluster", node, Node)
        if sum(node.count for node in self.nodes) > _MOST_NODES:
            raise InputError(
                f"the cluster has {sum(n.count for n in self.nodes)} nodes; expected {_MOST_NODES} at most"
            )
        names = [node.name for node in self.replicas]
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise InputError(f"two nodes of the cluster are called {twice!r}; names must differ")
        if not isinstance(self.on_full, str) or self.on_full not in ON_FULL:
            raise InputError(f"on_full is {self.on_full!r}; {near_matches('choices', str(self.on_full), ON_FULL)}")
        if self.rebalance_gap < 2:
            raise InputError("rebalance_gap is 1; expected 2 or more: a move over a gap of 1 only changes places")
        self._check_pools()
        for failure in self.failures:
            instance("a failure of the cluster", failure, Failure)
            if failure.node not in names:
                raise InputError(f"failure of node {failure.node!r}: {near_matches('nodes', failure.node, names)}")

    def _check_pools(self) -> None:
        roles = {node.role for node in self.nodes}
        if ("prefill" in roles) != ("decode" in roles):
            has, lacks = ("prefill", "decode") if "prefill" in roles else ("decode", "prefill")
            raise InputError(f"the cluster has {has} nodes and no {lacks} node; expected both or neither")
        if self.link is not None:
            instance("link of the cluster", self.link, KvLink)
        if self.disaggregated and self.link is None:
            raise InputError("the cluster hands requests over and has no link; give link=KvLink(bytes_per_token, ...)")
        if self.decode_router.name not in _DECODE_ROUTERS:
            raise InputError(
                f"decode_router is {self.decode_router.name!r}; expected one of {', '.join(_DECODE_ROUTERS)}"
            )
        for name in ("convention", "gap_mode", "gap_from_s", "gap_to_s"):
            values = {getattr(node.config, name) for node in self.nodes}
            if len(values) > 1:
                raise InputError(f"nodes of the cluster differ in {name}: {sorted(map(str, values))}; expected one")

    def with_(self, **changes: Any) -> Cluster:
        """Return a copy with the named settings changed."""
        names = [f.name for f in fields(self)]
        for given in changes:
            if given not in names:
                raise InputError(f"a cluster has no setting {given!r}; {near_matches('settings', given, names)}")
        made: dict[str, Any] = {**{name: getattr(self, name) for name in names}, **changes}
        return Cluster(made.pop("nodes"), **made)

    @property
    def replicas(self) -> tuple[Node, ...]:
        """Every single node, in order."""
        return tuple(one for node in self.nodes for one in node.replicas)

    @property
    def disaggregated(self) -> bool:
        """Whether requests are handed over between pools."""
        return any(node.role == "decode" for node in self.nodes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything it was made with, as plain data."""
        from tileq_engine.run_raw import plain

        return {
            "nodes": [node.to_dict() for node in self.nodes],
            "router": self.router.to_dict(),
            "decode_router": self.decode_router.to_dict(),
            "link": plain(self.link),
            "on_full": self.on_full,
            "rebalance_s": self.rebalance_s,
            "rebalance_gap": self.rebalance_gap,
            "failures": plain(list(self.failures)),
        }


def _router(given: Router | str) -> Router:
    if isinstance(given, str):
        return router(given)
    instance("router", given, Router)
    return given

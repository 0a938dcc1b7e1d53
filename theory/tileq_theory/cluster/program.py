r"""Capacity of a cluster: which class goes where, unequal nodes, prefill and decode pools, links.

Groups g of R_g equal nodes behind one router. With q_i the shares of the classes and lambda the rate of all requests,
the flows f_{g,i} (requests per second of class i to group g) solve

    maximise lambda
    sum over "both" and "prefill" groups of f_{g,i} = q_i lambda           everybody is served
    sum over "prefill" of f_{g,i} = sum over "decode" of f_{g,i}           what is prefilled apart is decoded apart
    (f_{g,1}, ..., f_{g,I}) in R_g Omega_g      the stability region of a node of g (of its half of the demand)
    sum_i b P_i f_{g,i} <= R_g B           "prefill" and "decode": a node's port carries B bytes a second
    sum_i b P_i sum over "prefill" of f_{g,i} <= shared                    the fabric

Omega_g is a polytope whose facets are dual prices of the node's own capacity program, sum_i price_i f_i <= R_g. They
are added as they are needed (cutting planes): the master program is solved with the facets known so far, each group's
flow is shot at, and a group outside its region gives the facet that it crosses. When no group is outside, the flows
are feasible and the master, a relaxation, proves that nothing better exists. The duals of the facets of g add up to
what one more node of g is worth.

It is an outer bound like the program of a node: no router and no policy is stable beyond it.
"""

from __future__ import annotations

__all__ = ["cluster_capacity"]

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.capacity.region import Facet, shoot
from tileq_theory.cluster.answer import ClusterCapacity, ClusterKkt, GroupUse
from tileq_theory.cluster.groups import NodeGroup
from tileq_theory.demand import Demand
from tileq_theory.disaggregation.link import KvLink
from tileq_theory.disaggregation.split import decode_demand, prefill_demand
from tileq_theory.errors import InputError, SolveError, instance, row_of_numbers, sequence

_OUTSIDE = 1e-8  # excess of a load over 1 that calls for another facet
_ROUNDS = 500
_BINDS = 1e-7  # dual of a row, in shares of the rate, above which it is said to bind


def cluster_capacity(
    groups: Sequence[NodeGroup],
    demands: Sequence[Demand],
    shares: Sequence[float] | Float[np.ndarray, "class"] | None = None,
    *,
    link: KvLink | None = None,
) -> ClusterCapacity:
    """Return the capacity of a cluster and the flows that reach it (the module's program).

    Parameters
    ----------
    groups
        The nodes; "prefill" and "decode" groups come together and need a link.
    demands
        Demand of one request of each class; a group's own, where it has them, come before.
    shares
        Share of each class in the requests, 0 or more; None: equal.
    link
        KV transfer between prefill and decode nodes.

    Raises
    ------
    InputError
        No groups or classes, names used twice, a role without its counterpart or without a link, a class that nobody
        can serve.

    Examples
    --------
    >>> from tileq_theory import IterationTime
    >>> from tileq_theory.capacity import Limits
    >>> slow = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> fast = IterationTime.dai(launch_s=0.00564, tile_s=0.017735, tile_tokens=128)
    >>> request = Demand(100, 100, 15050, 5050, 15150, 101, 100, 200)
    >>> limits = Limits(max_batch_tokens=512)
    >>> answer = cluster_capacity([NodeGroup("a", slow, limits, 2), NodeGroup("b", fast, limits)], [request])
    >>> round(answer.rate_per_s, 4), round(answer.equal_shares_rate_per_s, 4)
    (66.8582, 50.1436)
    """
    q = _checked(groups, demands, shares, link)
    nodes = [_Nodes(group, list(demands if group.demands is None else group.demands), q) for group in groups]
    _check_served(nodes, q)
    master = _Master(nodes, list(demands), q, link)
    for _ in range(_ROUNDS):
        master.solve()
        if not master.cut():
            return _answer(master)
    raise SolveError(f"the cluster's program was not closed in {_ROUNDS} rounds; report this input")


def _checked(
    groups: Sequence[NodeGroup], demands: Sequence[Demand], shares: Any, link: KvLink | None
) -> Float[np.ndarray, "class"]:
    groups, demands = sequence("groups", groups, "NodeGroup"), sequence("demands", demands, "Demand")
    for group in groups:
        instance("a group of nodes", group, NodeGroup)
    for demand in demands:
        instance("a demand", demand, Demand)
    if link is not None:
        instance("link", link, KvLink)
    if not groups or not demands:
        raise InputError(
            f"{len(groups)} groups of nodes and {len(demands)} classes given; expected one or more of each"
        )
    names = [group.name for group in groups]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two groups of nodes are called {twice!r}; give each its own name")
    for group in groups:
        if group.demands is not None and len(group.demands) != len(demands):
            raise InputError(
                f"group {group.name} has demands of {len(group.demands)} classes and the cluster of {len(demands)}; "
                "expected one a class"
            )
    roles = {group.role for group in groups}
    for one, other in (("prefill", "decode"), ("decode", "prefill")):
        if one in roles and other not in roles:
            raise InputError(f"there are {one} nodes but no {other} nodes; expected both, or nodes that do both")
    if "prefill" in roles and link is None:
        raise InputError("prefill and decode nodes are given without a link; expected the link that carries the KV")
    q = np.ones(len(demands)) if shares is None else row_of_numbers("shares", shares)
    if q.shape != (len(demands),) or not np.isfinite(q).all() or (q < 0).any() or q.sum() <= 0:
        raise InputError(f"shares are {q.tolist()}; expected {len(demands)} numbers of 0 or more, not all 0")
    return np.asarray(q / q.sum())


@dataclass(slots=True, eq=False)
class _Nodes:
    """A group with its halves of the demands, the classes it can serve and the facets found so far."""

    group: NodeGroup
    demands: list[Demand]
    shares: Float[np.ndarray, "class"]
    serves: list[int] = field(init=False)
    facets: list[Facet] = field(init=False)

    def __post_init__(self) -> None:
        half = {"both": lambda d: d, "prefill": prefill_demand, "decode": decode_demand}[self.group.role]
        self.demands = [half(demand) for demand in self.demands]
        self.serves = [i for i in range(len(self.demands)) if self.group.may_serve(i) and self._fits(i)]
        self.facets = []

    def _fits(self, index: int) -> bool:
        """Return whether a class can be served at all; a half without tokens costs nothing anywhere."""
        demand = self.demands[index]
        if demand.prefill_tokens + demand.decode_tokens <= 0:
            return True
        try:
            self.group.limits.check_classes(self.group.time, {str(index): demand})
        except InputError:
            return False
        return True

    def costing(self) -> list[int]:
        """Return the classes it serves whose half of the demand is not empty."""
        return [i for i in self.serves if self.demands[i].prefill_tokens + self.demands[i].decode_tokens > 0]

    def shoot(self, flow: Float[np.ndarray, "class"]) -> tuple[float, Facet | None]:
        """Return the load of one node's share of `flow` and the facet that it meets first."""
        own = self.costing()
        point = flow[own] / self.group.count
        if point.sum() <= 0:
            return 0.0, None
        rate, facet = shoot(self.group.time, [self.demands[i] for i in own], self.group.limits, point / point.sum())
        price = np.zeros(flow.size)
        price[own] = facet.price_s
        return float(point.sum()) / rate, Facet(price, facet.binding)


def _check_served(nodes: Sequence[_Nodes], q: np.ndarray) -> None:
    for i in np.flatnonzero(q > 0):
        for roles in (("both", "prefill"), ("both", "decode")):
            if not any(i in n.serves and n.group.role in roles for n in nodes):
                raise InputError(
                    f"class {i} can be served by no node ({' or '.join(roles)}): no group may take it, or it never "
                    "fits their memory or TBT limit"
                )


class _Master:
    """The linear program over flows with the facets known so far, in units of a rate near the optimum."""

    def __init__(self, nodes: list[_Nodes], demands: list[Demand], q: np.ndarray, link: KvLink | None) -> None:
        self.nodes, self.q, self.link = nodes, q, link
        self.bytes = np.array([d.prompt_tokens * link.bytes_per_token for d in demands]) if link else np.zeros(q.size)
        self.columns = [(g, i) for g, n in enumerate(nodes) for i in n.serves]
        self.at = {pair: k for k, pair in enumerate(self.columns)}
        for n in nodes:
            self._first_facets(n)
        self.unit = self._unit()
        self.x = np.zeros(0)

    def _first_facets(self, n: _Nodes) -> None:
        """Start from the facets along the mix and along each class alone, so that the master is bounded."""
        mixed = np.where(np.isin(np.arange(self.q.size), n.serves), self.q, 0.0)
        directions = [np.eye(self.q.size)[i] for i in n.costing()]
        for direction in [*([mixed] if mixed.sum() > 0 else []), *directions]:
            facet = n.shoot(direction)[1]
            if facet is not None:
                n.facets.append(facet)

    def _unit(self) -> float:
        rates = [
            n.group.count / float(f.price_s @ self.q)
            for n in self.nodes
            for f in n.facets[:1]
            if f.price_s @ self.q > 0
        ]
        return max(rates, default=1.0)

    def rows(self) -> tuple[np.ndarray, np.ndarray, list[tuple[str, int]], np.ndarray, np.ndarray]:
        """Return A, b, what each row is about, A_eq, b_eq; the last column is the rate, all in units of `unit`."""
        width = len(self.columns) + 1
        rows, right, about = [], [], []
        for g, n in enumerate(self.nodes):
            for facet in n.facets:
                row = np.zeros(width)
                for i in n.serves:
                    row[self.at[g, i]] = facet.price_s[i] * self.unit / n.group.count
                rows.append(row)
                right.append(1.0)
                about.append(("node", g))
            if self.link is not None and n.group.role != "both" and np.isfinite(self.link.node_bytes_per_s):
                row = np.zeros(width)
                for i in n.serves:
                    row[self.at[g, i]] = self.bytes[i] * self.unit / (n.group.count * self.link.node_bytes_per_s)
                rows.append(row)
                right.append(1.0)
                about.append(("port", g))
        if self.link is not None and np.isfinite(self.link.shared_bytes_per_s):
            row = np.zeros(width)
            for g, n in enumerate(self.nodes):
                if n.group.role == "prefill":
                    for i in n.serves:
                        row[self.at[g, i]] = self.bytes[i] * self.unit / self.link.shared_bytes_per_s
            rows.append(row)
            right.append(1.0)
            about.append(("fabric", -1))
        equal = np.zeros((2 * self.q.size, width))
        for (g, i), k in self.at.items():
            role = self.nodes[g].group.role
            equal[i, k] = 0.0 if role == "decode" else 1.0
            equal[self.q.size + i, k] = {"both": 0.0, "prefill": 1.0, "decode": -1.0}[role]
        equal[: self.q.size, -1] = -self.q
        return np.array(rows), np.array(right), about, equal, np.zeros(len(equal))

    def solve(self) -> None:
        """Solve the master; its primal and dual answers are kept."""
        from scipy.optimize import linprog

        self.a, self.b, self.about, self.a_eq, self.b_eq = self.rows()
        cost = np.zeros(len(self.columns) + 1)
        cost[-1] = -1.0
        found = linprog(cost, self.a, self.b, self.a_eq, self.b_eq, bounds=(0, None), method="highs-ds")
        if found.status != 0:
            raise SolveError(f"the cluster's program ended with '{found.message}'; check that some limit is finite")
        self.x = np.maximum(np.asarray(found.x, dtype=float), 0.0)
        self.duals = np.maximum(-found.ineqlin.marginals, 0.0)
        self.free = -found.eqlin.marginals

    def flow(self, g: int) -> Float[np.ndarray, "class"]:
        """Return requests per second of each class to group g."""
        flow = np.zeros(self.q.size)
        for i in self.nodes[g].serves:
            flow[i] = self.x[self.at[g, i]] * self.unit
        return flow

    def cut(self) -> bool:
        """Shoot at every group's flow and add the facets that are crossed; return whether there were any."""
        added = False
        self.loads: list[float] = []
        self.bindings: list[str] = []
        for g, n in enumerate(self.nodes):
            flow = self.flow(g)
            load, facet = n.shoot(flow)
            self.loads.append(load)
            self.bindings.append("-" if facet is None else facet.binding)
            if facet is None or load <= 1 + _OUTSIDE:
                continue
            n.facets.append(self._crossed(n, flow, facet))
            added = True
        return added

    def _crossed(self, n: _Nodes, flow: np.ndarray, facet: Facet) -> Facet:
        """Return a facet that the flow crosses; the dual of a degenerate optimum may miss it, so the ray is tilted."""
        point = flow / n.group.count
        inside = np.zeros(self.q.size)
        inside[n.costing()] = point.sum() / len(n.costing())
        for share in (0.0, 1e-6, 1e-4, 1e-2):
            tried = facet if share == 0 else n.shoot(n.group.count * ((1 - share) * point + share * inside))[1]
            if tried is not None and tried.load(point) > 1 + _OUTSIDE / 2:
                return tried
        raise SolveError(f"a facet of group {n.group.name} could not be found; report this input")


def _answer(m: _Master) -> ClusterCapacity:
    rate = float(m.x[-1])
    worth: dict[str, float] = {}
    groups = []
    for g, n in enumerate(m.nodes):
        node = float(sum(m.duals[k] for k, row in enumerate(m.about) if row == ("node", g)))
        port = float(sum(m.duals[k] for k, row in enumerate(m.about) if row == ("port", g)))
        use = float(sum(m.a[k] @ m.x for k, row in enumerate(m.about) if row == ("port", g)))
        worth[n.group.name] = node
        worth["link"] = worth.get("link", 0.0) + port
        has_port = n.group.role != "both" and m.link is not None
        groups.append(
            GroupUse(
                name=n.group.name,
                role=n.group.role,
                count=n.group.count,
                rates_per_s=m.flow(g),
                load=m.loads[g],
                binding=m.bindings[g],
                # one more node lets every row of the group, and its ports, grow by 1/count
                node_price_per_s=(node + port) * m.unit / n.group.count,
                link_use=use if has_port else None,
                link_price_per_s=port * m.unit / 100,
            )
        )
    fabric = [k for k, row in enumerate(m.about) if row[0] == "fabric"]
    worth["fabric"] = float(m.duals[fabric].sum())
    binding = sorted((name for name, value in worth.items() if value > _BINDS), key=lambda name: -worth[name])
    return ClusterCapacity(
        rate_per_s=rate * m.unit,
        binding=tuple(binding),
        same_mix_rate_per_s=_same_mix(m, equal=False),
        equal_shares_rate_per_s=_same_mix(m, equal=True),
        class_prices=-m.free[: m.q.size] / (rate * m.unit),
        fabric_use=float(m.a[fabric[0]] @ m.x) if fabric else None,
        fabric_price_per_s=worth["fabric"] * m.unit / 100,
        groups=tuple(groups),
        kkt=_check(m),
    )


def _same_mix(m: _Master, *, equal: bool) -> float | None:
    """Return the rate when every node of a role gets the mix q, with the best weights or with equal shares."""
    if any(set(np.flatnonzero(m.q > 0)) - set(n.serves) for n in m.nodes):
        return None
    pools: dict[str, list[tuple[int, float]]] = {}
    for n in m.nodes:
        load, _ = n.shoot(m.q)
        one = np.inf if load == 0 else 1.0 / (load * n.group.count)
        port = np.inf
        if m.link is not None and n.group.role != "both" and m.bytes @ m.q > 0:
            port = m.link.node_bytes_per_s / float(m.bytes @ m.q)
        pools.setdefault(n.group.role, []).append((n.group.count, min(one, port)))

    def pool(members: list[tuple[int, float]]) -> float:
        count = sum(size for size, _ in members)
        return count * min(r for _, r in members) if equal else sum(size * r for size, r in members)

    total = pool(pools["both"]) if "both" in pools else 0.0
    if "prefill" in pools:
        apart = min(pool(pools["prefill"]), pool(pools["decode"]))
        if m.link is not None and m.bytes @ m.q > 0:
            apart = min(apart, m.link.shared_bytes_per_s / float(m.bytes @ m.q))
        total += apart
    return float(total)


def _check(m: _Master) -> ClusterKkt:
    """Take the residuals of the optimality conditions, apart from the solver."""
    cost = np.zeros(m.x.size)
    cost[-1] = 1.0
    slack = m.b - m.a @ m.x
    reduced = m.a.T @ m.duals + m.a_eq.T @ m.free - cost
    return ClusterKkt(
        primal=float(max(np.max(-slack), np.max(np.abs(m.a_eq @ m.x)), 0.0)),
        dual=float(max(np.max(-reduced), 0.0)),
        complementary=float(max(np.max(np.abs(m.duals * slack)), np.max(np.abs(m.x * reduced)))),
        gap=float(abs(m.x[-1] - m.b @ m.duals)),
        nodes=float(max(0.0, max(m.loads) - 1)),
    )

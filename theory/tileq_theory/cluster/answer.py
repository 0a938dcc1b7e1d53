"""The answer of the cluster's capacity program: rate, who serves what, what binds, prices, and its proof."""

from __future__ import annotations

__all__ = ["ClusterCapacity", "ClusterKkt", "GroupUse"]

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.cluster.groups import Role


@dataclass(frozen=True, slots=True, eq=False)
class GroupUse:
    """What a group of nodes does at capacity.

    Parameters
    ----------
    name, role, count
        Of the group.
    rates_per_s
        Requests per second of each class that come here, over all its nodes.
    load
        Share of its capacity that they take; 1: full.
    binding
        What limits its nodes at that mix (of the node's own program); "-" where nothing comes here.
    node_price_per_s
        Requests per second that one more node of the group would bring, at the margin.
    link_use
        Share of its nodes' ports that KV transfers take; None without transfers.
    link_price_per_s
        Requests per second that one percent more port bandwidth of the group would bring.
    """

    name: str
    role: Role
    count: int
    rates_per_s: Float[np.ndarray, "class"]
    load: float
    binding: str
    node_price_per_s: float
    link_use: float | None
    link_price_per_s: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**data, "rates_per_s": self.rates_per_s.tolist()}


@dataclass(frozen=True, slots=True)
class ClusterKkt:
    """Largest violations of the optimality conditions of the last master program, and of the nodes' own programs.

    `primal`, `dual`, `complementary`, `gap` are of the master, in units where the rate is near 1; `nodes` is the
    largest excess of a group's load over 1 by its own capacity program, whose conditions were checked when it was
    solved.
    """

    primal: float
    dual: float
    complementary: float
    gap: float
    nodes: float

    def ok(self, tolerance: float = 1e-6) -> bool:
        """Return True when every violation is at most `tolerance`."""
        return max(self.primal, self.dual, self.complementary, self.gap, self.nodes) <= tolerance

    def to_dict(self) -> dict[str, Any]:
        """Return the violations and the verdict as plain data."""
        return {**{name: getattr(self, name) for name in self.__dataclass_fields__}, "ok": self.ok()}


@dataclass(frozen=True, slots=True, eq=False)
class ClusterCapacity:
    """Capacity of a cluster: an outer bound on every router and every node policy.

    Parameters
    ----------
    rate_per_s
        Largest rate of requests of the mix.
    binding
        What stops it: names of groups, and "link" or "fabric", largest worth first.
    same_mix_rate_per_s
        What a router that does not tell classes apart can reach with the right weights: every node of a role gets the
        same mix (None where some class may not go everywhere).
    equal_shares_rate_per_s
        The same with equal shares for all nodes of a role (random without weights, round robin).
    class_prices
        Share of the capacity that one request per second of each class takes.
    fabric_use, fabric_price_per_s
        Share of the shared bandwidth in use, and requests per second that one percent more of it would bring.
    groups
        What each group does.
    kkt
        Proof of optimality.
    """

    rate_per_s: float
    binding: tuple[str, ...]
    same_mix_rate_per_s: float | None
    equal_shares_rate_per_s: float | None
    class_prices: Float[np.ndarray, "class"]
    fabric_use: float | None
    fabric_price_per_s: float
    groups: tuple[GroupUse, ...]
    kkt: ClusterKkt

    def group(self, name: str) -> GroupUse:
        """Return the group of that name."""
        return next(group for group in self.groups if group.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        return {
            "rate_per_s": self.rate_per_s,
            "binding": list(self.binding),
            "same_mix_rate_per_s": self.same_mix_rate_per_s,
            "equal_shares_rate_per_s": self.equal_shares_rate_per_s,
            "class_prices": self.class_prices.tolist(),
            "fabric_use": self.fabric_use,
            "fabric_price_per_s": self.fabric_price_per_s,
            "groups": [group.to_dict() for group in self.groups],
            "kkt": self.kkt.to_dict(),
        }

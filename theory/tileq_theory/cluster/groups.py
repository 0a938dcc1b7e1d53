"""Nodes of a cluster by groups of equals: what they are, what they do, whom they may serve."""

from __future__ import annotations

__all__ = ["ROLES", "NodeGroup", "Role"]

from dataclasses import dataclass
from typing import Literal

from tileq_theory.capacity import Limits
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, instance, positive_int
from tileq_theory.iteration_time import IterationTime

Role = Literal["both", "prefill", "decode"]
ROLES: tuple[Role, ...] = ("both", "prefill", "decode")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes.

    Parameters
    ----------
    name
        Its name in answers.
    time, limits
        Iteration time and limits of one node; `limits.nodes` is ignored, `count` says how many there are.
    count
        Nodes of the group.
    role
        "both": requests are prefilled and decoded here; "prefill", "decode": one half, the KV travels between.
    classes
        Indices of the request classes that may come here; None: all.
    demands
        Demand of one request of each class at these nodes, where it is not the same everywhere (a prefix cache leaves
        less to prefill); None: the cluster's.
    """

    name: str
    time: IterationTime
    limits: Limits
    count: int = 1
    role: Role = "both"
    classes: tuple[int, ...] | None = None
    demands: tuple[Demand, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InputError(f"the name of a group of nodes is {self.name!r}; expected a word")
        instance(f"time of group {self.name}", self.time, IterationTime)
        instance(f"limits of group {self.name}", self.limits, Limits)
        if not isinstance(self.role, str) or self.role not in ROLES:
            raise InputError(f"role of group {self.name} is {self.role!r}; expected one of {', '.join(ROLES)}")
        object.__setattr__(self, "count", positive_int(f"count of group {self.name}", self.count))
        object.__setattr__(self, "limits", self.limits.with_(nodes=1))

    def may_serve(self, index: int) -> bool:
        """Return whether class `index` may be sent here."""
        return self.classes is None or index in self.classes

"""What became of every request of a cluster's run, each counted once."""

from __future__ import annotations

__all__ = ["Outcome", "outcome"]

from dataclasses import dataclass
from typing import Any

import numpy as np

from tileq_engine.cluster.result import ClusterRun
from tileq_engine.records import REASONS

_REJECTED = 4  # place in `records.STATUS`


@dataclass(frozen=True, slots=True)
class Outcome:
    """Requests by where they ended, or stood when the run stopped.

    Parameters
    ----------
    finished
        All their tokens were delivered.
    rejected
        Turned away, by reason (`records.REASONS`).
    stranded
        Only nodes that are gone for good could have taken them.
    at_router
        Held until a node has room or comes up.
    between_pools
        Handed over; their KV waits for a decode node or is on its way.
    on_nodes
        Waiting or running on a node.
    to_come
        Not yet arrived.
    """

    finished: int
    rejected: dict[str, int]
    stranded: int
    at_router: int
    between_pools: int
    on_nodes: int
    to_come: int

    @property
    def unserved(self) -> int:
        """Requests that were neither finished nor rejected."""
        return self.stranded + self.at_router + self.between_pools + self.on_nodes + self.to_come

    @property
    def total(self) -> int:
        """All requests: nobody is lost, and nobody counted twice."""
        return self.finished + sum(self.rejected.values()) + self.unserved

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain data, with `unserved` and `total`."""
        counts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**counts, "unserved": self.unserved, "total": self.total}


def outcome(run: ClusterRun) -> Outcome:
    """Return what became of the requests of `run`.

    The counts come from the router's and the nodes' own books, not from one another, so that `total` tells whether
    somebody was lost.

    Examples
    --------
    >>> from tileq_engine.cluster import Cluster, Failure, Node, simulate_cluster
    >>> from tileq_engine.requests import Requests
    >>> from tileq_theory.iteration_time import IterationTime
    >>> asked = Requests.from_arrays(arrival_s=[0.0, 1.0], prompt_tokens=[100, 100], output_tokens=[3, 3])
    >>> alone = Cluster([Node("gpu", IterationTime.constant(0.01))], failures=[Failure("gpu", 0.5)])
    >>> found = outcome(simulate_cluster(asked, alone, mode="python"))
    >>> found.finished, found.stranded, found.total
    (1, 1, 2)
    """
    c = run.counters
    reasons = run.reject_reason[run.status == _REJECTED]
    return Outcome(
        finished=c["finished"],
        rejected={REASONS[int(r)]: int((reasons == r).sum()) for r in np.unique(reasons)},
        stranded=c["stranded"],
        at_router=c["held_at_router"],
        between_pools=c["waiting_for_decode"] + c["in_transfer"],
        on_nodes=c["on_nodes"],
        to_come=c["to_come"],
    )

"""The routers by name: which node a request is sent to, and what that costs.

| router | looks at | cost of a request in N nodes |
|---|---|---|
| random | nothing | log N (by weight: a search in the running sums) |
| round_robin | nothing; strides by weight | log N |
| jsq | requests in system of all nodes | log N an event |
| least_work | tokens left of all nodes | log N an event |
| most_free | KV blocks used of all nodes | log N an event |
| power_of_two | a few nodes drawn | a constant |
| session_affinity | a hash of the session | a constant |
| tenant | a few of the tenant's nodes | a constant |
| prefix_affinity | the node that had the prefix last, and two drawn | a constant |
"""

from __future__ import annotations

__all__ = ["Router", "router", "router_names"]

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tileq_theory.errors import InputError, near_matches, nonnegative_int, positive_int

_MOST_CHOICES = 64
_MOST_SLACK = 2**31
_KINDS = {"random": 0, "tree": 1, "few": 2, "ring": 3, "tenant": 4, "prefix": 5}
_BY = {"queue": 0, "work": 1, "passes": 2, "blocks": 3}


@dataclass(frozen=True, slots=True)
class Router:
    """A named way to choose a node; made by `router`.

    Parameters
    ----------
    name
        One of `router_names()`.
    params
        What it was made with.
    kind, by
        The kernel's rule and what it compares.
    lazy
        Whether it looks at few nodes, so that the others need not be brought up to the present.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "tree"
    by: str = "queue"
    lazy: bool = False

    @property
    def code(self) -> tuple[int, int, int, int]:
        """Kind, number of choices, what is compared and slack, as the kernels have them."""
        choices = int(self.params.get("choices", 2))
        return _KINDS[self.kind], choices, _BY[self.by], int(self.params.get("slack", 0))

    def to_dict(self) -> dict[str, Any]:
        """Return name and parameters as plain data."""
        return {"name": self.name, **self.params}


_MADE: dict[str, tuple[str, str, bool, dict[str, Any]]] = {  # kind, by, lazy, defaults
    "random": ("random", "queue", True, {}),
    "round_robin": ("tree", "passes", True, {}),
    "jsq": ("tree", "queue", False, {}),
    "least_work": ("tree", "work", False, {}),
    "most_free": ("tree", "blocks", False, {}),
    "power_of_two": ("few", "queue", True, {"choices": 2, "by": "queue"}),
    "session_affinity": ("ring", "queue", True, {"points": 64}),
    "tenant": ("tenant", "queue", True, {"choices": 2}),
    "prefix_affinity": ("prefix", "queue", True, {"slack": 8}),
}


def router_names() -> tuple[str, ...]:
    """Return the names of every router.

    Examples
    --------
    >>> "jsq" in router_names()
    True
    """
    return tuple(_MADE)


def router(name: str, **params: Any) -> Router:
    """Return the router `name` with the given parameters.

    * `random()`: with probability in proportion to the nodes' weights.
    * `round_robin()`: in turn; a node of twice the weight twice as often.
    * `jsq()`: join the shortest queue, requests in system over weight; ties: who was given a request longest ago.
    * `least_work()`: the same with tokens left. `most_free()`: the same with the share of KV blocks used.
    * `power_of_two(choices=2, by="queue")`: `choices` nodes drawn without replacement, all alike, then the least
      loaded by "queue" or "work", over weight; ties: the first drawn (Mitzenmacher, IEEE TPDS 12(10), 2001).
    * `session_affinity(points=64)`: consistent hashing; a node has `points` places on the ring times its weight.
    * `tenant(choices=2)`: power of `choices` among the nodes that serve the request's tenant.
    * `prefix_affinity(slack=8)`: the node that had the request's prefix last, unless its queue is more than `slack`
      requests above the shorter of two drawn, which then has the prefix.

    Raises
    ------
    InputError
        When the name or a parameter is unknown, or a parameter's value is out of its domain.

    Examples
    --------
    >>> router("power_of_two", choices=3).params["choices"]
    3
    """
    if not isinstance(name, str) or name not in _MADE:
        raise InputError(f"router {name!r} is unknown; {near_matches('routers', str(name), _MADE)}")
    kind, by, lazy, defaults = _MADE[name]
    for given in params:
        if given not in defaults:
            known = near_matches("parameters", given, defaults) if defaults else "it has none"
            raise InputError(f"router {name} has no parameter {given!r}; {known}")
    chosen = {**defaults, **params}
    for counted in ("choices", "points"):
        if counted in chosen:
            chosen[counted] = positive_int(counted, chosen[counted])
    if chosen.get("choices", 1) > _MOST_CHOICES:
        raise InputError(f"choices is {chosen['choices']}; expected at most {_MOST_CHOICES}")
    if "slack" in chosen:
        chosen["slack"] = nonnegative_int("slack", chosen["slack"])
        if chosen["slack"] > _MOST_SLACK:
            raise InputError(f"slack is {chosen['slack']}; expected at most {_MOST_SLACK} requests")
    if "by" in chosen:
        if chosen["by"] not in ("queue", "work"):
            raise InputError(f"by is {chosen['by']!r}; expected 'queue' or 'work'")
        by = chosen["by"]
    return Router(name, chosen, kind, by, lazy)

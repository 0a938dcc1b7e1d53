"""Tenants: who shares the machine, at which weights, with which quota, urgency and deadline."""

from __future__ import annotations

__all__ = ["Tenants"]

import math
from dataclasses import dataclass

import numpy as np

from tileq_engine.fairness import ACCOUNT, ACCOUNT_FIELDS, FIRST_BACKGROUND
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError, finite, near_matches, nonnegative, positive, positive_int, sequence

_OF = {"names": "words", "weights": "numbers", "quotas": "whole numbers", "priorities": "whole numbers",
       "deadlines_s": "seconds"}  # fmt: skip
_CHARGE = 1 << 20  # virtual tokens that a token of price 1 adds to the counter of the heaviest tenant
_MOST_PRIORITY = 2**31 - 2


@dataclass(frozen=True, slots=True)
class Tenants:
    """The tenants of a run; tenant i of the requests is the i-th here.

    Parameters
    ----------
    names
        One a tenant, unique.
    weights
        Shares of the service that tenants with enough work are to get, in any unit: 0 or more, one above 0. A tenant
        of weight 0 is served when no other waits. Empty: equal weights.
    quotas
        Requests a tenant may have active at once, 1 or more; None (or empty): no bound.
    priorities
        Lower is more urgent. Empty: the requests' own.
    deadlines_s
        Seconds to the first token that a tenant's requests are allowed (policy `edf`); empty: none.
    prompt_price, output_price
        What a prompt and an output token count as service; 1 and 2 in Sheng et al. (OSDI 2024).

    Examples
    --------
    >>> Tenants(("gold", "free"), weights=(3.0, 1.0)).shares
    (0.75, 0.25)
    """

    names: tuple[str, ...]
    weights: tuple[float, ...] = ()
    quotas: tuple[int | None, ...] = ()
    priorities: tuple[int, ...] = ()
    deadlines_s: tuple[float, ...] = ()
    prompt_price: float = 1.0
    output_price: float = 2.0

    def __post_init__(self) -> None:
        for field in ("names", "weights", "quotas", "priorities", "deadlines_s"):
            given = getattr(self, field)
            object.__setattr__(self, field, () if given is None else sequence(f"{field} of tenants", given, _OF[field]))
        if not self.names:
            raise InputError("no tenant was given; expected at least one name")
        odd = next((name for name in self.names if not isinstance(name, str) or not name), None)
        if odd is not None:
            raise InputError(f"a tenant's name is {odd!r}; expected a word")
        twice = next((name for name in self.names if self.names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"tenant {twice!r} is given twice; expected every name once")
        for field in ("weights", "quotas", "priorities", "deadlines_s"):
            given = getattr(self, field)
            if given and len(given) != len(self.names):
                raise InputError(
                    f"{field} has {len(given)} values for {len(self.names)} tenants; expected one a tenant"
                )
        object.__setattr__(self, "weights", checked_weights(self.names, self.weights or (1.0,) * len(self.names)))
        for name, quota in zip(self.names, self.quotas, strict=False):
            if quota is not None:
                positive_int(f"quota of tenant {name!r}", quota)
        for name, priority in zip(self.names, self.priorities, strict=False):
            if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _MOST_PRIORITY:
                raise InputError(f"priority of tenant {name!r} is {priority!r}; expected a whole number, lower first")
        for name, deadline in zip(self.names, self.deadlines_s, strict=False):
            positive(f"deadline of tenant {name!r}", deadline)
        prices = [nonnegative(n, getattr(self, n)) for n in ("prompt_price", "output_price")]
        if not any(prices):
            raise InputError("prompt_price and output_price are both 0; expected one above 0: nothing would count")

    @property
    def shares(self) -> tuple[float, ...]:
        """Weights as shares of one."""
        total = math.fsum(self.weights)
        return tuple(weight / total for weight in self.weights)

    def index(self, name: str) -> int:
        """Return the place of the tenant of that name."""
        if name not in self.names:
            raise InputError(f"tenant {name!r} is unknown; {near_matches('tenants', name, self.names)}")
        return self.names.index(name)

    def charges(self) -> tuple[tuple[int, int], ...]:
        """Return what a prompt and an output token add to each tenant's counter, whole numbers.

        2^20 * price/(larger price) * (largest weight)/(own weight), rounded: counters are exact, and shares off by 1e-6
        at most. Among tenants of weight 0 all are equal.
        """
        top = max(self.weights)
        unit = _CHARGE / max(self.prompt_price, self.output_price)
        scale = [unit * (top / weight if weight > 0 else 1.0) for weight in self.weights]
        return tuple((round(self.prompt_price * s), round(self.output_price * s)) for s in scale)

    def accounts(self, quota: int = 0) -> list[int]:
        """Return the tenants' rows in the integers of a policy; `quota` bounds everybody (0: not)."""
        rows: list[int] = []
        for t, (prompt, output) in enumerate(self.charges()):
            row = dict.fromkeys(ACCOUNT_FIELDS, 0)
            own = (self.quotas[t] if self.quotas else None) or 0
            row["quota"] = min(own, quota) if own and quota else own or quota
            row["counter"] = 0 if self.weights[t] > 0 else FIRST_BACKGROUND
            row["prompt_charge"], row["output_charge"], row["since"] = prompt, output, -1
            rows += row.values()
        assert len(rows) == ACCOUNT * len(self.names)
        return rows

    def check(self, requests: Requests) -> None:
        """Raise `InputError` where requests name a tenant that is not here, or counters could not hold their tokens."""
        if not len(requests):
            return
        last = int(requests.tenant.max())
        if last >= len(self.names):
            raise InputError(
                f"requests name tenant {last}, but {len(self.names)} tenants are given ({', '.join(self.names)}); "
                "expected one for each that the requests name"
            )
        most = 0.0
        for t, (prompt, output) in enumerate(self.charges()):
            mine = requests.tenant == t
            tokens = [float(column[mine].sum()) for column in (requests.prompt_tokens, requests.output_tokens)]
            most += tokens[0] * prompt + tokens[1] * output
        if most > 2.0**58:
            raise InputError(
                f"weights from {min(w for w in self.weights if w > 0):g} to {max(self.weights):g} are too far apart "
                f"for {len(requests)} requests, whose counters would not fit; bring weights or prices closer together"
            )

    def with_priorities(self, requests: Requests) -> Requests:
        """Return the requests with their tenants' priorities, or as they are where none were given."""
        self.check(requests)
        if not self.priorities:
            return requests
        return requests.with_(priority=np.asarray(self.priorities, dtype=np.int64)[requests.tenant])


def checked_weights(names: tuple[str, ...], weights: tuple[float, ...]) -> tuple[float, ...]:
    """Return the weights as floats; none below 0, not all 0."""
    for name, weight in zip(names, weights, strict=True):
        if finite(f"weight of tenant {name!r}", weight) < 0:
            raise InputError(f"weight of tenant {name!r} is {weight!r}; expected 0 or more")
    if not any(weights):
        raise InputError(f"the weights of tenants {', '.join(names)} are all 0; expected one above 0")
    return tuple(float(weight) for weight in weights)


def anonymous(requests: Requests) -> Tenants:
    """Return equal tenants for the indices that the requests name."""
    count = int(requests.tenant.max()) + 1 if len(requests) else 1
    return Tenants(tuple(f"tenant {t}" for t in range(count)))

"""From a question to the engine: which requests, which engine settings, which policies.

What `simulate`, `compare` and `plan --check` share. The engine's budget, slots and KV memory are the plan's, unless
given: a simulation without further words answers "what does the plan do".
"""

from __future__ import annotations

__all__ = ["Experiment", "make_experiment", "parse_policy", "parse_rates"]

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tileq_theory.errors import InputError, positive, positive_int

if TYPE_CHECKING:
    from tileq.planning import Plan
    from tileq_engine.config import EngineConfig
    from tileq_engine.policy import Policy
    from tileq_theory.workload import Workload

_RATES_AT_MOST = 200


@dataclass(frozen=True, slots=True)
class Experiment:
    """A plan's machine and traffic, ready for the engine.

    Parameters
    ----------
    plan
        The plan whose iteration time, memory, budget and slots are simulated (one of its replicas).
    config
        Settings of the engine.
    requests
        Requests of one run.
    tiers
        Share and TBT limits of paying requests, or None for one tier.
    """

    plan: Plan
    config: EngineConfig
    requests: int
    tiers: Mapping[str, float] | None

    @property
    def workload(self) -> Workload:
        """The plan's workload."""
        return self.plan.traffic.workload

    @property
    def capacity_per_s(self) -> float:
        """lambda* of one replica, requests per second."""
        return self.plan.rate_per_s / self.plan.tile.capacity.limits.nodes

    def policy(self, text: str) -> Policy:
        """Return the policy that `text` names; generalised RAD takes its tiles from the plan."""
        return parse_policy(text, plan=self.plan)

    def setting(self) -> dict[str, Any]:
        """Return what was simulated, as plain data."""
        return {
            "gpu": self.plan.setting.gpu.name,
            "model": self.plan.setting.model.name,
            "workload": self.plan.traffic.label,
            "token_budget": self.config.token_budget,
            "max_num_seqs": self.config.max_num_seqs,
            "kv_tokens": self.config.kv_tokens,
            "convention": self.config.convention,
            "preemption": self.config.preemption,
            "requests": self.requests,
            "tiers": None if self.tiers is None else dict(self.tiers),
            "capacity_per_s": self.capacity_per_s,
        }


def make_experiment(
    plan: Plan,
    *,
    requests: int = 4000,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
    kv_tokens: int | None = None,
    preemption: str = "recompute",
    paying: float | None = None,
    check: bool = False,
    stop_backlog: int | None = None,
) -> Experiment:
    """Return the experiment on one replica of `plan`.

    Parameters
    ----------
    requests
        Requests of one run.
    token_budget, max_num_seqs, kv_tokens
        Engine settings; None: the plan's.
    preemption
        "recompute", "swap" or "none".
    paying
        Share of requests with a TBT limit of 0.1 s, the others 0.5 s (SLAI's tiers); None: one tier.
    check
        Recompute every invariant of the engine at every iteration (slow).
    stop_backlog
        Requests in the system at which a run is cut short as unstable; None: the larger of 2000 and a quarter of
        the requests.
    """
    from tileq_engine.config import EngineConfig

    count = positive_int("requests", requests)
    if paying is not None and not 0 <= paying <= 1:
        raise InputError(f"paying is {paying!r}; expected a share in [0, 1]")
    memory = plan.setting.kv_tokens if kv_tokens is None else positive_int("kv_tokens", kv_tokens)
    config = EngineConfig(
        token_budget=plan.token_budget if token_budget is None else token_budget,
        max_num_seqs=plan.tile.max_num_seqs if max_num_seqs is None else max_num_seqs,
        kv_tokens=memory,
        convention=plan.convention,
        preemption=preemption,  # type: ignore[arg-type]
        check=check,
        stop_backlog=max(2000, count // 4) if stop_backlog is None else stop_backlog,
    )
    tiers = None if paying is None else {"paying_share": paying}
    return Experiment(plan, config, count, tiers)


def parse_policy(text: str, *, plan: Plan | None = None) -> Policy:
    """Return the policy of `name` or `name:parameter=value:...`, e.g. "slai:order=spf:theta=10".

    Examples
    --------
    >>> parse_policy("sarathi:order=spf").name
    'sarathi_spf'
    """
    from tileq_engine.registry import policy

    name, *settings = text.split(":")
    params: dict[str, Any] = {}
    for item in settings:
        key, equals, value = item.partition("=")
        if not equals or not key or not value:
            raise InputError(f"policy {text!r} has the setting {item!r}; expected name:parameter=value")
        params[key.strip().replace("-", "_")] = _value(value.strip())
    plain_name = name.strip().replace("-", "_")
    if plain_name == "rad_general" and not {"plan", "levels"} & params.keys():
        if plan is None:
            raise InputError("policy rad_general takes its tiles from a plan; give one, or levels from Python")
        params["plan"] = plan.tile
    try:
        return policy(plain_name, **params)
    except TypeError:
        raise InputError(f"policy {text!r} has a value of the wrong kind; see tileq catalog policies") from None


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def parse_rates(text: str) -> tuple[float, ...]:
    """Return the rates of "0.5,1,2" or "first:last:step" (last included when a step meets it).

    Examples
    --------
    >>> parse_rates("0.5:2.0:0.5")
    (0.5, 1.0, 1.5, 2.0)
    """
    parts = text.split(":") if ":" in text else text.split(",")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        raise InputError(f"rates are {text!r}; expected numbers as 0.5,1,2 or first:last:step") from None
    if ":" in text:
        numbers = _steps(text, numbers)
    return tuple(positive("rate", number) for number in numbers)


def _steps(text: str, numbers: Sequence[float]) -> list[float]:
    if len(numbers) != 3 or not all(math.isfinite(n) for n in numbers) or numbers[2] <= 0 or numbers[1] < numbers[0]:
        raise InputError(f"rates are {text!r}; expected first:last:step with a step above 0 and last at least first")
    first, last, step = numbers
    count = math.floor((last - first) / step * (1 + 1e-12) + 1e-9) + 1
    if count > _RATES_AT_MOST:
        raise InputError(f"rates {text!r} are {count} rates; expected at most {_RATES_AT_MOST}: take a larger step")
    return [float(f"{first + i * step:.12g}") for i in range(count)]

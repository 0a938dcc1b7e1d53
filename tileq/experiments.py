"""From a question to the engine: which requests, which engine settings, which policies.

What `simulate`, `compare` and `plan --check` share. The engine's budget, slots and KV memory are the plan's, unless
given: a simulation without further words answers "what does the plan do".
"""

from __future__ import annotations

__all__ = ["Experiment", "make_experiment", "parse_policy", "parse_rates", "ready_file", "ready_folder"]

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
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
    budget = plan.token_budget if token_budget is None else positive_int("token_budget", token_budget)
    config = EngineConfig(
        token_budget=budget,
        # the plan's own number, or what a smaller budget leaves of it: engines ask for a token a resident
        max_num_seqs=min(plan.tile.max_num_seqs, budget) if max_num_seqs is None else max_num_seqs,
        kv_tokens=memory,
        convention=plan.convention,
        preemption=preemption,  # type: ignore[arg-type]
        check=check,
        stop_backlog=max(2000, count // 4) if stop_backlog is None else stop_backlog,
    )
    _check_some_fit(plan, memory)
    tiers = None if paying is None else {"paying_share": paying}
    return Experiment(plan, config, count, tiers)


def _check_some_fit(plan: Plan, kv_tokens: int) -> None:
    """Raise `InputError` where not even the shortest request could ever be served."""
    shortest = plan.tile.capacity.demand.shortest_context_tokens
    if shortest > kv_tokens:
        raise InputError(
            f"kv_tokens is {kv_tokens}, but the shortest request needs {shortest:g}: nothing could be served; raise it"
        )


def ready_folder(folder: str | PathLike[str] | None) -> Path | None:
    """Return the folder of results, made if it is not there; before any long work."""
    if folder is None:
        return None
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"folder {path} cannot be made ({reason}); expected a folder to write results to") from None
    return path


def ready_file(option: str, path: str | PathLike[str], endings: Sequence[str]) -> Path:
    """Return `path` if it has one of the endings and lies in a folder; before any long work."""
    file = Path(path)
    if file.suffix not in endings:
        raise InputError(f"{option} is {str(file)!r}; expected a name that ends in {' or '.join(endings)}")
    if not file.parent.is_dir():
        raise InputError(f"{option} {file} lies in {file.parent}, which is not a folder; make it first")
    return file


def parse_policy(text: str, *, plan: Plan | None = None) -> Policy:
    """Return the policy of `name` or `name:parameter=value:...`, e.g. "slai:order=spf:theta=10".

    A list is written with plus signs: "nested_wait:boundaries=8+64:thresholds=4+2+1"; "4+" is a list of one.

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
    if "+" in text.strip("+") or text.endswith("+"):
        return tuple(_value(part) for part in text.split("+") if part)
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

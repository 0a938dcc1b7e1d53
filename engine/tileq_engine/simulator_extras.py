"""What tenants, backpressure, control and bottlenecks add to the arrays of a run, and what they leave behind."""

from __future__ import annotations

__all__ = ["Causes", "extras", "tenant_record"]

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from tileq_engine.clock import PS_PER_S
from tileq_engine.config import EngineConfig
from tileq_engine.fairness import ACCOUNT, ACCOUNT_FIELDS, TENANT_SAMPLE
from tileq_engine.observed import Bottlenecks, TenantRecord
from tileq_engine.policy import Policy
from tileq_engine.pressure import CAUSE_FIELDS
from tileq_engine.requests import Requests
from tileq_engine.tenants import Tenants, anonymous
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

if TYPE_CHECKING:
    from tileq_engine.simulator_state import State

_FAR = 2**62
_SAMPLE_ROOM = 2_000_000  # integers of all samples: with many tenants fewer are kept
_CAUSE_ROWS = 4096  # before the buffer is emptied
_BUDGETED = ("mix_chunked", "mix_in_order")  # mixing rules that make chunks of a budget


def extras(
    requests: Requests,
    policy: Policy,
    time: IterationTime,
    config: EngineConfig,
    prepared: Mapping[str, float],
    place: int,
    columns: int,
) -> tuple[dict[str, float], list[int]]:
    """Return the scalars of these features and the integers they add to the policy's, the first at `place`.

    `columns` is the width of a sample without them.
    """
    scalars: dict[str, float] = {"row": columns, "causes_cap": _FAR, "samples_cap": config.sample_limit}
    integers: list[int] = []
    tenants = accounted(requests, config, prepared)
    if tenants is not None:
        tenants.check(requests)
        integers += tenants.accounts(int(prepared.get("quota", 0)))
        row = columns + TENANT_SAMPLE * len(tenants.names)
        quota = any(tenants.quotas) or prepared.get("quota", 0) > 0
        scalars |= {"account": 1, "ntenants": len(tenants.names), "tenants": place, "last_tenant": -1, "warm": 1}
        scalars |= {"row": row, "samples_cap": max(2, min(config.sample_limit, _SAMPLE_ROOM // row))}
        scalars |= {"quota": int(quota), **({"dynamic": 1} if quota else {})}
    if config.watch:
        scalars |= {"watch": 1, "causes": place + len(integers), "causes_cap": _CAUSE_ROWS, "warm": 1}
        integers += [0] * (CAUSE_FIELDS * _CAUSE_ROWS)
    if config.reservation != "policy":
        scalars["alloc"] = ("optimistic", "prompt", "conservative").index(config.reservation)
    scalars |= _backpressure(policy, config) | _control(policy, config)
    scalars["extras"] = int(any(scalars.get(name, 0) for name in ("account", "watch", "control", "pressure")))
    return scalars, integers


def accounted(requests: Requests, config: EngineConfig, prepared: Mapping[str, float]) -> Tenants | None:
    """Return the tenants whose accounts are kept: those of the settings, or those a quota or counters make needful."""
    if config.tenants is not None:
        return config.tenants
    return anonymous(requests) if prepared.get("quota") or prepared.get("fair") else None


def _backpressure(policy: Policy, config: EngineConfig) -> dict[str, float]:
    asked = config.backpressure
    if asked is None or asked.action == "hold":
        return {}
    low = asked.shrunk_tokens or max(1, config.token_budget // 2)
    if asked.action == "shrink":
        _makes_chunks(policy, "backpressure 'shrink'")
        _budget_of_every_resident(policy, config, low, "shrunk budget")
    blocks = _FAR if asked.kv_share is None else max(1, -int(-asked.kv_share * config.kv_blocks // 1))
    return {
        "pressure": asked.code,
        "press_waiting": asked.waiting or _FAR,
        "press_blocks": blocks,
        "full": config.token_budget,
        "low": low,
    }


def _control(policy: Policy, config: EngineConfig) -> dict[str, float]:
    asked = config.control
    if asked is None:
        return {}
    _makes_chunks(policy, "control of TBT")
    least = asked.least_tokens or min(config.max_num_seqs, config.token_budget)
    _budget_of_every_resident(policy, config, least, "control's least_tokens")
    most = max(least, asked.most_tokens or config.token_budget)
    limit = round(asked.tbt_s * PS_PER_S)
    return {
        "control": 1,
        "warm": 1,
        "limit": limit,
        "aim": 0.9 * limit,
        "gain": asked.gain,
        "exceed": asked.exceed,
        "forget": asked.forget,
        "least": least,
        "most": most,
        "full": min(config.token_budget, most),
        "budget": min(config.token_budget, most),
    }


def _makes_chunks(policy: Policy, what: str) -> None:
    if policy.mixing not in _BUDGETED or policy.scalars.get("whole", 0):
        raise InputError(
            f"{what} changes the chunks of a token budget, and policy {policy.name} makes none; choose a policy with "
            "chunked prefills (sarathi, vllm_v1, slai, vtc, ...)"
        )


def _budget_of_every_resident(policy: Policy, config: EngineConfig, least: int, what: str) -> None:
    if policy.mixing == "mix_in_order" and least < config.max_num_seqs:
        raise InputError(
            f"{what} is {least} tokens and max_num_seqs {config.max_num_seqs}; {policy.name} needs a budget of at "
            "least one token a resident: raise the one or lower the other"
        )


class Causes:
    """Bottlenecks taken out of the loop's buffer."""

    def __init__(self) -> None:
        self._watched = False
        self._parts: list[Int[np.ndarray, "interval 5"]] = []

    def take(self, state: State) -> None:
        """Empty the buffer."""
        self._watched = self._watched or state.scalar("watch") == 1
        count = state.scalar("ncauses")
        if count:
            at = state.scalar("causes")
            rows = np.array(state.P[at : at + CAUSE_FIELDS * count], dtype=np.int64).reshape(-1, CAUSE_FIELDS)
            self._parts.append(rows)
            state.set_scalars({"ncauses": 0})

    def record(self) -> Bottlenecks | None:
        """Return the intervals so far; None where nobody watched."""
        if not self._watched:
            return None
        rows = np.concatenate([np.zeros((0, CAUSE_FIELDS), dtype=np.int64), *self._parts])
        goes_on = np.zeros(len(rows), dtype=bool)  # an interval that a full buffer has cut
        goes_on[1:] = (rows[1:, 0] == rows[:-1, 0]) & (rows[1:, 1] == rows[:-1, 2])
        starts = np.flatnonzero(~goes_on)
        if not len(starts):
            return Bottlenecks(*(np.zeros(0, dtype=np.int64) for _ in range(CAUSE_FIELDS)))
        ends = np.append(starts[1:], len(rows)) - 1
        return Bottlenecks(
            cause=rows[starts, 0],
            begin_ps=rows[starts, 1],
            end_ps=rows[ends, 2],
            iterations=np.add.reduceat(rows[:, 3], starts),
            waiting=np.maximum.reduceat(rows[:, 4], starts),
        )


def tenant_record(
    state: State, columns: list[np.ndarray], requests: Requests, config: EngineConfig
) -> TenantRecord | None:
    """Return what the tenants' accounts say in the end; None where none were kept."""
    if not state.scalar("account"):
        return None
    count, at = state.scalar("ntenants"), state.scalar("tenants")
    tenants = config.tenants or Tenants(tuple(f"tenant {t}" for t in range(count)))
    rows = np.array(state.P[at : at + ACCOUNT * count], dtype=np.int64).reshape(count, ACCOUNT)
    account = dict(zip(ACCOUNT_FIELDS, rows.T, strict=True))
    last = np.where(account["present"] > 0, state.scalar("now") - account["since"], 0)  # starved when the run stopped
    longer = last > account["starved"]
    samples = len(columns[0])
    series = np.stack(columns, axis=1).reshape(samples, count, TENANT_SAMPLE)
    prefilled, delivered, present, waiting, counter = (
        np.ascontiguousarray(series[:, :, k]) for k in range(TENANT_SAMPLE)
    )
    return TenantRecord(
        names=tenants.names,
        weights=tenants.weights,
        prompt_price=tenants.prompt_price,
        output_price=tenants.output_price,
        prefilled_tokens=prefilled,
        delivered_tokens=delivered,
        present=present,
        waiting=waiting,
        counter=counter,
        end_prefilled_tokens=np.ascontiguousarray(account["prefilled"]),
        end_delivered_tokens=np.ascontiguousarray(account["delivered"]),
        end_counter=np.ascontiguousarray(account["counter"]),
        starved_ps=np.where(longer, last, account["starved"]),
        starved_from_ps=np.where(longer, account["since"], account["starved_from"]),
    )

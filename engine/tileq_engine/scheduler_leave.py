"""Requests that leave a scheduler otherwise than at their limit: a stop token, or somebody who gives up.

Plain functions on the records of a run; an executor needs them rarely, so they are not compiled.
"""

from __future__ import annotations

__all__ = ["cancel", "end_early"]

from typing import Any

import numpy as np

from tileq_engine.compile import plain_kernels
from tileq_engine.fairness import ACCOUNT, ACCOUNT_FIELDS
from tileq_engine.records import FREE, PREFILL, STATUS
from tileq_engine.simulator_state import State
from tileq_theory.errors import InputError

_WAITING, _REJECTED = STATUS.index("waiting"), STATUS.index("rejected")
CANCELLED = 5  # place in `records.REASONS`


def _get(state: State, table: str, place: int, field: str) -> int:
    records: Any = getattr(state, table)
    return int(records[field][place]) if state.compiled else int(getattr(records[place], field))


def _set(state: State, table: str, place: int, **fields: int) -> None:
    records: Any = getattr(state, table)
    for field, value in fields.items():
        if state.compiled:
            records[field][place] = value
        else:
            setattr(records[place], field, value)


def _seat(state: State, request: int) -> int:
    """Return the place of `request` in the order of admission, -1 when it is no resident."""
    for place in range(state.scalar("nres")):
        if _get(state, "B", int(state.O[place]), "id") == request:
            return place
    return -1


def end_early(state: State, request: int) -> None:
    """Make the token that the open batch gives to `request` its last."""
    place = _seat(state, request)
    if place < 0:
        raise InputError(f"request {request} is not in the batch; only a member can end with it")
    slot = int(state.O[place])
    decodes = _get(state, "B", slot, "dec") == 1
    after = _get(state, "B", slot, "cached") + _get(state, "B", slot, "chunk")
    ends_prefill = not decodes and after == _get(state, "B", slot, "target") and state.scalar("emit") == 1
    if not (decodes or ends_prefill) or _get(state, "B", slot, "replay") > 0:
        raise InputError(f"request {request} gets no token from this batch, so that it cannot end with it")
    done, limit = _get(state, "B", slot, "gen") + 1, _get(state, "B", slot, "output")
    if limit > done:
        state.set_scalars({"work": state.scalar("work") - (limit - done)})
        _set(state, "B", slot, output=done)
        _set(state, "R", request, output=done)


def cancel(state: State, request: int) -> None:
    """Take `request` out of the system; its status becomes "rejected" with the reason "cancelled"."""
    if not 0 <= request < state.scalar("n"):
        raise InputError(f"request {request} is unknown; the scheduler has {state.scalar('n')}")
    if request >= state.scalar("next"):
        raise InputError(f"request {request} has not arrived yet; it can be cancelled once it has")
    place = _seat(state, request)
    if place >= 0:
        _leave_seat(state, request, place)
    elif _get(state, "R", request, "status") == _WAITING:
        _leave_queue(state, request)
    else:
        name = STATUS[_get(state, "R", request, "status")]
        raise InputError(f"request {request} is {name}; only a waiting or a running one can be cancelled")
    _set(state, "R", request, status=_REJECTED, reason=CANCELLED, cached=0)
    state.set_scalars(
        {name: state.scalar(name) + step for name, step in (("nsys", -1), ("rejected", 1))},
    )


def _leave_seat(state: State, request: int, place: int) -> None:
    slot = int(state.O[place])
    b = {name: _get(state, "B", slot, name) for name in ("blocks", "cached", "target", "output", "gen", "replay")}
    left = b["output"] - b["gen"] + b["replay"]
    if _get(state, "B", slot, "phase") == PREFILL:
        left += b["target"] - b["cached"] - state.scalar("emit")
    for name in ("gen", "last", "max_gap", "over"):
        _set(state, "R", request, **{name: _get(state, "B", slot, name)})
    freed = _given_back(state, slot, b["blocks"])
    _set(state, "B", slot, blocks=0, phase=FREE, dec=0, chunk=0)
    residents = state.scalar("nres")
    for k in range(place, residents - 1):
        state.O[k] = state.O[k + 1]
    state.O[residents - 1] = slot
    _count_out(state, request, "residents")
    state.set_scalars(
        {
            "nres": residents - 1,
            "free": state.scalar("free") + freed,
            "work": state.scalar("work") - left,
        }
    )


def _given_back(state: State, slot: int, blocks: int) -> int:
    """Return the blocks that come free when the resident of `slot` leaves; its references in the prefix tree end."""
    if state.scalar("tree") == 0:
        return blocks
    S, B = (t.view(np.recarray) if state.compiled else t for t in (state.S, state.B))
    kernels = plain_kernels()
    kernels["evict_idle"](S, state.P)
    return int(kernels["give_back"](S, state.P, B[slot]))


def _leave_queue(state: State, request: int) -> None:
    left = _get(state, "R", request, "output") - _get(state, "R", request, "gen")
    if _get(state, "R", request, "cached") == 0:  # the whole prompt, and what it has delivered, is to be prefilled
        left = _get(state, "R", request, "prompt") + _get(state, "R", request, "output") - state.scalar("emit")
    waiting = state.scalar("nwait")
    rest = [int(i) for i in state.H[:waiting] if int(i) != request]
    if len(rest) < waiting:  # it may have arrived without having been brought to the policy yet
        _count_out(state, request, "waiting")
        rest.sort(key=lambda i: _queue_key(state, i))
        for k, i in enumerate(rest):  # a sorted list is a heap
            state.H[k] = i
    state.set_scalars(
        {
            "nwait": len(rest),
            "nwaiting": state.scalar("nwaiting") - 1,
            "work": state.scalar("work") - left,
        }
    )


def _count_out(state: State, request: int, where: str) -> None:
    """Take `request` out of its tenant's account, from among its residents or those who wait."""
    if state.scalar("account") > 0:
        row = state.scalar("tenants") + ACCOUNT * _get(state, "R", request, "tenant")
        for field in (where, "present"):
            state.P[row + ACCOUNT_FIELDS.index(field)] -= 1


def _queue_key(state: State, i: int) -> tuple[int, float, int]:
    key = float(state.R["key"][i]) if state.compiled else float(state.R[i].key)
    return _get(state, "R", i, "front"), key, i

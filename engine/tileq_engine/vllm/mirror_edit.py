"""Edits of the simulator's arrays from outside its loop: what vLLM did otherwise, told afterwards.

All are numpy on the records of a compiled state, and rare, but for `reserved_blocks` and `leave`.
"""

from __future__ import annotations

__all__ = [
    "compact",
    "drop",
    "empty_batch",
    "leave",
    "recount",
    "reserved_blocks",
    "run_as",
    "set_progress",
    "shift_tokens",
    "to_front",
    "unseat",
]

from collections.abc import Sequence

import numpy as np

from tileq_engine.policy import PolicyError
from tileq_engine.records import DECODE, FREE, PREFILL
from tileq_engine.simulator_state import State

_WAITING, _RUNNING, _FINISHED = 1, 2, 3
_TO_BE_PLACED = 3  # of `sorted`: its place in the list of deadlines is to be found anew
_FIRST = 1 << 40


def _seats(state: State) -> np.ndarray:
    """Return the residents' slots, in order of admission."""
    seats: np.ndarray = state.O[: state.scalar("nres")]
    return seats


def slot_of(state: State, request: int) -> int:
    """Return the slot of resident `request`, -1 when it is none."""
    seats = _seats(state)
    found = np.flatnonzero(state.B["id"][seats] == request)
    return int(seats[found[0]]) if found.size else -1


def reserved_blocks(state: State) -> int:
    """Return the blocks that residents hold in the mirror and have not filled yet; vLLM counts those as free."""
    seats = _seats(state)
    if not seats.size:
        return 0
    block = state.scalar("block")
    filled = (state.B["cached"][seats] + (block - 1)) // block
    return int((state.B["blocks"][seats] - filled).sum())


def to_front(state: State, request: int) -> None:
    """Let a request that has just been added stand ahead of all others, behind those that came so before it."""
    turn = state.scalar("swap_turn") + 1
    state.set_scalars({"swap_turn": turn})
    state.R["front"][request] = turn - _FIRST


def leave(state: State, requests: Sequence[int], in_flight: bool) -> None:
    """Take requests out, wherever they are; with `in_flight`, one that is in the open batch leaves when it ends."""
    status = state.R["status"][requests]
    seated = [i for i, s in zip(requests, status.tolist(), strict=True) if s == _RUNNING]
    rest = [i for i, s in zip(requests, status.tolist(), strict=True) if s != _RUNNING]
    if seated:
        _empty_seats(state, seated, in_flight)
    if rest:
        _leave_queue(state, rest)
    state.R["status"][requests] = _FINISHED


def _empty_seats(state: State, requests: list[int], in_flight: bool) -> None:
    seats = _seats(state)
    gone = np.isin(state.B["id"][seats], requests)
    slots = seats[gone]
    state.set_scalars(
        {
            "free": state.scalar("free") + int(state.B["blocks"][slots].sum()),
            "nres": int(seats.size - slots.size),
            "nsys": state.scalar("nsys") - len(slots),
            "finished": state.scalar("finished") + len(slots),
        }
    )
    if in_flight:
        state.set_scalars(
            {
                "ndec": state.scalar("ndec") - int(state.B["dec"][slots].sum()),
                "npre": state.scalar("npre") - int(state.B["chunk"][slots].sum()),
            }
        )
    if state.scalar("quota") > 0:
        for tenant in state.R["tenant"][requests].tolist():
            state.P[state.scalar("tenants") + tenant] -= 1
    for name in ("blocks", "phase", "dec", "chunk"):
        state.B[name][slots] = 0
    kept = seats[~gone]
    state.O[: seats.size] = np.concatenate([kept, slots])


def _leave_queue(state: State, requests: list[int]) -> None:
    """Take waiting requests out of the heap, and those that the policy has not seen yet off the list of arrivals."""
    waiting = state.H[: state.scalar("nwait")]
    kept = waiting[~np.isin(waiting, requests)]
    _set_queue(state, kept)
    announced = state.scalar("next")
    known = sum(1 for i in requests if i < announced)
    state.set_scalars({"nsys": state.scalar("nsys") - known, "nwaiting": state.scalar("nwaiting") - known})
    for i in requests:
        if i >= announced:
            raise ValueError(f"request {i} has not been announced; announce before it leaves")


def _set_queue(state: State, waiting: np.ndarray) -> None:
    order = np.lexsort((waiting, state.R["key"][waiting], state.R["front"][waiting]))
    state.H[: waiting.size] = waiting[order]  # a sorted list is a heap
    state.set_scalars({"nwait": int(waiting.size)})


def unseat(state: State, request: int, *, front: bool, tokens: int) -> None:
    """Put a resident back into the queue, with `tokens` to prefill; `front`: ahead, as whoever was preempted."""
    slot = slot_of(state, request)
    if slot < 0:
        return
    for name in ("gen", "last", "max_gap", "over"):
        state.R[name][request] = state.B[name][slot]
    state.R["prompt"][request] = max(1, tokens - int(state.B["gen"][slot]))
    state.R["status"][request] = _WAITING
    state.R["cached"][request] = 0
    seats = _seats(state)
    kept = seats[seats != slot]
    state.O[: seats.size] = np.concatenate([kept, [slot]])
    values = {
        "free": state.scalar("free") + int(state.B["blocks"][slot]),
        "nres": int(kept.size),
        "nwaiting": state.scalar("nwaiting") + 1,
    }
    if front:
        values["front"] = state.scalar("front") - 1
        state.R["front"][request] = values["front"]
    state.set_scalars(values)
    if state.scalar("quota") > 0:
        state.P[state.scalar("tenants") + int(state.R["tenant"][request])] -= 1
    for name, value in (("blocks", 0), ("phase", FREE), ("dec", 0), ("chunk", 0)):
        state.B[name][slot] = value
    _set_queue(state, np.append(state.H[: state.scalar("nwait")], request))


def drop(state: State, request: int, resident: bool) -> None:
    """Take a request's tokens out of the open batch; unless it is still `resident` in vLLM, it goes back to wait."""
    slot = slot_of(state, request)
    if slot < 0:
        return
    if not resident:
        tokens = int(state.B["target"][slot] - state.B["cached"][slot])
        begun = int(state.B["cached"][slot]) > 0
        unseat(state, request, front=begun or int(state.R["preempted"][request]) > 0, tokens=max(tokens, 1))
        return
    state.B["dec"][slot] = 0
    state.B["chunk"][slot] = 0


def run_as(state: State, request: int, tokens: int, left: int) -> None:
    """Let a request run `tokens` tokens in the open batch, with `left` to prefill after them."""
    slot = slot_of(state, request)
    if slot < 0:
        _seat(state, request)
        slot = slot_of(state, request)
        if slot < 0:
            return
    cached = int(state.B["cached"][slot])
    decodes = int(state.B["phase"][slot]) == DECODE and left == 0
    state.B["dec"][slot] = int(decodes)
    state.B["chunk"][slot] = 0 if decodes else tokens
    if not decodes:
        state.B["phase"][slot] = PREFILL
        state.B["target"][slot] = cached + tokens + left
    block = state.scalar("block")
    need = (cached + (1 if decodes else tokens) + block - 1) // block
    held = int(state.B["blocks"][slot])
    if need > held:
        state.B["blocks"][slot] = need


def _seat(state: State, request: int) -> None:
    """Make a waiting request a resident: vLLM has admitted it of its own accord."""
    if int(state.R["status"][request]) != _WAITING or state.scalar("nres") >= len(state.B):
        return
    residents = state.scalar("nres")
    slot = int(state.O[residents])
    r = state.R[request]
    for name in ("output", "gen", "replay", "group", "limit", "last", "max_gap", "over"):
        state.B[name][slot] = r[name]
    values = {"id": request, "dec": 0, "chunk": 0, "sorted": 0, "stage": 0, "lst": state.scalar("now")}
    values |= {"target": int(r["prompt"] + r["gen"] - r["replay"]), "blocks": 0, "cached": 0, "phase": PREFILL}
    for name, value in values.items():
        state.B[name][slot] = value
    state.R["status"][request] = _RUNNING
    state.R["front"][request] = 0
    waiting = state.H[: state.scalar("nwait")]
    _set_queue(state, waiting[waiting != request])
    state.set_scalars({"nres": residents + 1, "nwaiting": state.scalar("nwaiting") - 1})
    if state.scalar("quota") > 0:
        state.P[state.scalar("tenants") + int(r["tenant"])] += 1


def empty_batch(state: State) -> None:
    """Take everybody's tokens out of the batch, as at the start of a decision."""
    seats = _seats(state)
    state.B["dec"][seats] = 0
    state.B["chunk"][seats] = 0
    names = ("ndec", "npre", "pairs2", "kv", "pad", "swap_tokens", "npreempt", "returned", "seqs")
    state.set_scalars({**dict.fromkeys(names, 0), "victims": -1})


def recount(state: State) -> None:
    """Count the batch anew from its members."""
    seats = _seats(state)
    dec, chunk = state.B["dec"][seats].astype(np.int64), state.B["chunk"][seats].astype(np.int64)
    cached = state.B["cached"][seats].astype(np.int64)
    kv = int((dec * (cached + 1)).sum())
    if state.scalar("kv_prefill") == 1:
        kv += int(((chunk > 0) * (cached + chunk)).sum())
    state.set_scalars(
        {
            "ndec": int(dec.sum()),
            "npre": int(chunk.sum()),
            "seqs": int(dec.sum() + (chunk > 0).sum()),
            "pairs2": int((chunk * (2 * cached + chunk + 1)).sum()),
            "kv": kv,
        }
    )


def set_progress(state: State, request: int, computed: int, produced: int) -> None:
    """Set a resident's tokens with KV, and the output tokens it has got."""
    slot = slot_of(state, request)
    if slot >= 0:
        state.B["cached"][slot] = computed
        state.B["gen"][slot] = min(produced, int(state.B["output"][slot]) - 1)


def shift_tokens(state: State, end: int, by: int) -> None:
    """Move by `by` the completions at `end`, and the deadlines that follow from them."""
    seats = _seats(state)
    slots = seats[state.B["last"][seats] == end]
    if slots.size and by:
        state.B["last"][slots] += by
        if state.scalar("deadline") > 0:
            bounded = slots[state.B["lst"][slots] < 1 << 61]
            state.B["lst"][bounded] += by
            state.B["sorted"][bounded] = _TO_BE_PLACED


def compact(state: State, live: list[int], capacity: int, *, numbered: bool) -> int:
    """Move the requests `live` to the front of the table, in their order; return its new capacity.

    `numbered`: the order rule goes by a request's number (first come, first served). Then those who wait have new ones
    in the queue as well, else whoever comes from now on would have a lower number than they.
    """
    places = np.asarray(live, dtype=np.int64)
    size = capacity if 2 * places.size < capacity else 2 * capacity
    moved = np.full(capacity, -1, dtype=np.int64)
    moved[places] = np.arange(places.size)
    R = np.zeros(size, dtype=state.R.dtype)
    R[: places.size] = state.R[places]
    if numbered:
        by_number = np.flatnonzero(R["key"][: places.size] == places)
        R["key"][by_number] = by_number
    for name in ("admit", "prefill_end", "first", "last", "finish"):
        R[name][places.size :] = -1
    R["victim"] = -1
    waiting = state.H[: state.scalar("nwait")].copy()
    H = np.zeros(size, dtype=np.int64)
    H[: waiting.size] = moved[waiting]
    seats = _seats(state)
    state.B["id"][seats] = moved[state.B["id"][seats]]
    joined, announced = state.scalar("joined"), state.scalar("next")
    state.set_scalars(
        {
            "n": places.size,
            "next": int(np.count_nonzero(places < announced)),
            "joined": int(np.count_nonzero(places < joined)),
            "victims": -1,
        }
    )
    state.R, state.H = R, H
    return size


def broken(state: State) -> PolicyError | None:
    """Return the first invariant that does not hold, None when all do."""
    seats = _seats(state)
    ids = state.B["id"][seats]
    if np.unique(ids).size != ids.size:
        return PolicyError("a request holds two seats")
    if not np.all(state.R["status"][ids] == _RUNNING):
        return PolicyError("a resident is not running")
    waiting = state.H[: state.scalar("nwait")]
    if np.unique(waiting).size != waiting.size or not np.all(state.R["status"][waiting] == _WAITING):
        return PolicyError("the queue holds a request twice, or one that does not wait")
    if np.unique(state.O).size != len(state.O):
        return PolicyError("the order of admission holds a slot twice")
    return None

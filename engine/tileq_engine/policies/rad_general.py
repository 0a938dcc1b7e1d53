"""Generalised RAD: tiles and ratio from the capacity program."""

from __future__ import annotations

__all__ = ["rad_general"]

import functools
import math
from collections.abc import Sequence
from typing import Any

from tileq_engine.config import EngineConfig
from tileq_engine.policies.common import checked_common
from tileq_engine.policy import Policy, Prepared
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError, nonnegative, positive, positive_int
from tileq_theory.iteration_time import IterationTime

_PRICED = 1e-3  # elasticity of the rate below which memory and slots do not bind (`Capacity.binding`)
Level = tuple[int, int, int, float]


def rad_general(
    *,
    plan: Any = None,
    levels: Sequence[Sequence[float]] | None = None,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """Generalised RAD: the levels of a tile plan, in the plan's proportions.

    A level is (tokens n, prefill tokens, decode tokens, share of the iterations). Every iteration the level whose
    turn it is (each earns its share, the richest pays) serves its decodes, those with the oldest last token first,
    then its prefill tokens, and fills what is left of its n with whatever has work: a batch is full while there is
    work for it. `plan` is a `TilePlan` or `Capacity` of the theory; `levels` gives the numbers directly.

    The program lets a batch decode some of the residents as if the others held nothing. They hold their KV and their
    slots, so where a plan's memory or slots bind, a resident that waits for its turn keeps another out: there every
    resident decodes in every batch, in the plan's single budget (of a `Capacity`, which has none: in its levels). It
    optimises throughput as the capacity program does, several tiles per batch and mixed levels included, so it is
    stable where the program says so as far as slots and memory let batches fill. It fails on latency: nothing in it
    looks at a deadline, and decodes beyond a level's number wait their turn.
    """
    if (plan is None) == (levels is None):
        raise InputError("rad_general needs a plan (a TilePlan or Capacity) or levels, and not both")
    chosen = _checked(levels) if levels is not None else _checked(_levels_of(plan))

    return Policy(
        name="rad_general",
        decodes="decodes_oldest",
        mixing="mix_tiles",
        params={"levels": tuple(chosen)},
        scalars={"alloc": 1, "to_front": 1, "deadline": 2},
        prepare=functools.partial(_table, chosen),
        **checked_common(token_budget, max_num_seqs),
    )


def _table(
    chosen: list[Level], policy: Policy, requests: Requests, time: IterationTime, config: EngineConfig
) -> Prepared:
    total = math.fsum(level[3] for level in chosen)
    flat: list[int] = []
    for tokens, prefill, decode, share in chosen:
        flat += [tokens, prefill, decode, round(1e6 * share / total), 0]
    flat[3] += 1_000_000 - sum(flat[3::5])  # the shares sum to one million, so that credits stay bounded
    return Prepared(requests, {"levels": len(chosen)}, tuple(flat))


def _levels_of(plan: Any) -> list[list[float]]:
    source = getattr(plan, "capacity", plan)
    found = getattr(source, "levels", None)
    if not found:
        raise InputError(f"plan is {type(plan).__name__}; expected a TilePlan or Capacity with levels in use")
    levels = [
        [round(u.tokens), math.floor(u.prefill_tokens), math.ceil(u.decode_tokens), u.iterations_per_s] for u in found
    ]
    if not _seats_are_scarce(source):
        return levels
    budget = getattr(plan, "token_budget", None)
    return _all_decode(source, levels) if budget is None else [[budget, 0, budget, 1.0]]


def _seats_are_scarce(capacity: Any) -> bool:
    """Return whether KV memory or slots have a price: a resident that waits for its turn keeps another out."""
    elasticities = getattr(capacity, "elasticities", None) or {}
    return any(elasticities.get(name, 0.0) > _PRICED for name in ("kv_tokens", "max_num_seqs"))


def _all_decode(capacity: Any, levels: list[list[float]]) -> list[list[float]]:
    """Return the levels with every resident's decode in each of them, to the end of their last tile.

    A batch without prefill then only delays it, and levels of decode alone are left out while others remain.
    """
    mixed = [level for level in levels if level[1] > 0] or levels
    tile, most = capacity.time.tile_tokens, capacity.limits.max_batch_tokens
    free = capacity.time.tile_s > 0 and capacity.limits.tbt_s is None  # the rest of a tile costs no time
    ends = [min(math.ceil(level[0] / tile) * tile, most) if free else level[0] for level in mixed]
    return [[end, 0, end, level[3]] for end, level in zip(ends, mixed, strict=True)]


def _checked(levels: Any) -> list[Level]:
    out: list[Level] = []
    if isinstance(levels, str) or not hasattr(levels, "__iter__"):
        raise InputError(f"levels are {levels!r}; expected a list of (tokens, prefill, decode, share)")
    for place, level in enumerate(levels):
        if isinstance(level, str) or not hasattr(level, "__len__") or len(level) != 4:
            raise InputError(f"level {place} is {level!r}; expected (tokens, prefill, decode, share)")
        tokens = positive_int(f"tokens of level {place}", level[0])
        prefill = int(nonnegative(f"prefill tokens of level {place}", level[1]))
        decode = int(nonnegative(f"decode tokens of level {place}", level[2]))
        if prefill + decode > tokens + 1:  # one token of rounding
            raise InputError(f"level {place} holds {prefill} + {decode} tokens in a batch of {tokens}")
        out.append((tokens, prefill, min(decode, tokens), positive(f"share of level {place}", level[3])))
    if not out:
        raise InputError("no levels are given; expected at least one (tokens, prefill, decode, share)")
    return out

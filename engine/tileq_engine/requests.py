"""What arrives: one validated array per field, sorted by arrival."""

from __future__ import annotations

__all__ = ["ClockError", "Requests", "check_span", "purpose_rng"]

import zlib
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from tileq_engine.clock import PS_PER_S
from tileq_engine.prefix_blocks import BlockPaths
from tileq_theory.errors import InputError, nonnegative_int, positive, positive_int

_LONGEST = 2**31 - 2
_LATEST_S = 4e6  # 46 days: picoseconds stay below 2**62
_LATEST_PS = 4 * 10**18

IntArray = Int[np.ndarray, "request"]


class ClockError(InputError):
    """A moment lies beyond what the clock can hold; a higher rate, or fewer requests, brings it back."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in order of arrival; arrays of one length, int64 unless said otherwise.

    Parameters
    ----------
    ids
        Unique names.
    arrival_ps
        Picoseconds, 0 or more, not decreasing.
    prompt_tokens, output_tokens
        At least 1 each.
    predicted_output_tokens
        What a policy may know of the output; the true output unless a predictor has spoken.
    class_index, tenant
        0 or more.
    priority
        Lower is more urgent, as vLLM counts.
    tbt_limit_ps
        Limit of the gaps between the request's tokens; 0 for none.
    paying
        bool.
    prefilled_tokens
        0, or the whole prompt for a request that arrives with its KV.
    blocks
        The full blocks of each request's tokens, for a prefix cache; None where they are not known.
    """

    ids: IntArray
    arrival_ps: IntArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    predicted_output_tokens: IntArray
    class_index: IntArray
    priority: IntArray
    tbt_limit_ps: IntArray
    paying: Bool[np.ndarray, "request"]
    tenant: IntArray
    prefilled_tokens: IntArray
    blocks: BlockPaths | None = None

    def __post_init__(self) -> None:
        n = len(self.ids)
        for name in _ARRAYS:
            if len(getattr(self, name)) != n:
                raise InputError(f"{name} has {len(getattr(self, name))} values; expected {n}, one a request")
        _at_least("arrival_ps", self.arrival_ps, 0, _LATEST_PS)
        _at_least("prompt_tokens", self.prompt_tokens, 1)
        _at_least("output_tokens", self.output_tokens, 1)
        _at_least("predicted_output_tokens", self.predicted_output_tokens, 0)
        _at_least("class_index", self.class_index, 0)
        _at_least("tenant", self.tenant, 0)
        _at_least("tbt_limit_ps", self.tbt_limit_ps, 0, _LATEST_PS)
        _at_least("priority", self.priority, -_LONGEST)
        _at_least("prompt_tokens + output_tokens", self.prompt_tokens + self.output_tokens, 2, _LONGEST + 1)
        step = np.diff(self.arrival_ps)
        if np.any(step < 0):
            at = int(np.argmax(step < 0)) + 1
            raise InputError(
                f"arrivals are not sorted: request {at} arrives at {self.arrival_ps[at]} ps, before request {at - 1} "
                f"at {self.arrival_ps[at - 1]} ps; sort the requests by arrival"
            )
        _unique(self.ids)
        odd = (self.prefilled_tokens != 0) & (self.prefilled_tokens != self.prompt_tokens)
        if np.any(odd):
            at = int(np.argmax(odd))
            raise InputError(
                f"prefilled_tokens of request {at} is {self.prefilled_tokens[at]}; expected 0 or its whole prompt "
                f"of {self.prompt_tokens[at]} tokens"
            )
        if self.blocks is not None:
            if not isinstance(self.blocks, BlockPaths):
                raise InputError(f"blocks is of type {type(self.blocks).__name__}; expected BlockPaths (BlockPaths.of)")
            _check_blocks(self.blocks, self.prompt_tokens + self.output_tokens)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def group(self) -> IntArray:
        """Index of each request's (class, tier) among `group_names`."""
        if self._one_group:
            return np.zeros(len(self), dtype=np.int64)
        return np.searchsorted(self._present, self._pairs).astype(np.int64)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the (class, tier) pairs present, in the order of `group`."""
        return tuple(f"class {p // 2}" + (" paying" if p % 2 else "") for p in self._present.tolist())

    @property
    def _present(self) -> IntArray:
        if self._one_group:
            return np.zeros(1, dtype=np.int64)
        pairs = self._pairs
        if len(pairs) and pairs.max() < 1 << 16:  # counting is linear: a million requests are common here
            return np.flatnonzero(np.bincount(pairs)).astype(np.int64)
        return np.unique(pairs)

    @property
    def _one_group(self) -> bool:
        return len(self) > 0 and not self.class_index.any() and not self.paying.any()

    @property
    def _pairs(self) -> IntArray:
        return np.asarray(self.class_index * 2 + self.paying, dtype=np.int64)

    def head(self, count: int) -> Requests:
        """Return the first `count` requests."""
        count = nonnegative_int("count", count)
        few = {name: getattr(self, name)[:count] for name in _ARRAYS}
        return Requests(**few, blocks=None if self.blocks is None else self.blocks.take(slice(count)))

    def with_(self, **changes: Any) -> Requests:
        """Return a copy with the named arrays replaced."""
        return replace(self, **changes)

    def with_tiers(
        self,
        *,
        seed: int,
        paying_share: float = 0.05,
        paying_tbt_s: float = 0.1,
        other_tbt_s: float = 0.5,
    ) -> Requests:
        """Return a copy in which each request pays with probability `paying_share`, with each tier's TBT limit.

        The defaults are SLAI's (arXiv 2508.01002): .1 s for 5 % of the requests, .5 s for the others.
        """
        if not 0 <= paying_share <= 1:
            raise InputError(f"paying_share is {paying_share!r}; expected a share in [0, 1]")
        paying = purpose_rng("tiers", seed).random(len(self)) < paying_share
        limits = [round(positive(n, v) * PS_PER_S) for n, v in (("paying", paying_tbt_s), ("other", other_tbt_s))]
        return self.with_(paying=paying, tbt_limit_ps=np.where(paying, *limits).astype(np.int64))

    @classmethod
    def from_arrays(
        cls,
        *,
        prompt_tokens: Any,
        output_tokens: Any,
        arrival_s: Any = None,
        arrival_ps: Any = None,
        ids: Any = None,
        predicted_output_tokens: Any = None,
        class_index: Any = None,
        priority: Any = None,
        tbt_limit_s: Any = None,
        tbt_limit_ps: Any = None,
        paying: Any = None,
        tenant: Any = None,
        prefilled_tokens: Any = None,
        blocks: Any = None,
    ) -> Requests:
        """Build from sequences or scalars (a scalar stands for every request); times in seconds or picoseconds.

        Examples
        --------
        >>> r = Requests.from_arrays(arrival_s=[0, 0.5], prompt_tokens=[100, 20], output_tokens=10)
        >>> len(r), int(r.arrival_ps[1])
        (2, 500000000000)
        """
        n = max(np.size(v) for v in (prompt_tokens, output_tokens, arrival_s, arrival_ps) if v is not None)

        def whole(name: str, values: Any, default: Any = 0) -> np.ndarray:
            return _whole(name, default if values is None else values, n)

        def ps(name: str, seconds: Any, picoseconds: Any) -> np.ndarray:
            if seconds is not None and picoseconds is not None:
                raise InputError(f"{name} is given in seconds and in picoseconds; give one of them")
            if seconds is None:
                return whole(f"{name}_ps", picoseconds)
            values = np.asarray(seconds, dtype=float)
            bad = ~((values >= 0) & (values <= _LATEST_S))
            if np.any(bad):
                at = int(np.argmax(bad.ravel()))
                raise ClockError(
                    f"{name}_s of request {at} is {float(values.ravel()[at])!r}; expected seconds in [0, {_LATEST_S:g}]"
                    " (the clock counts picoseconds)"
                )
            return whole(f"{name}_s", np.rint(values * PS_PER_S))

        output = whole("output_tokens", output_tokens)
        return cls(
            ids=whole("ids", ids, np.arange(n)),
            arrival_ps=ps("arrival", arrival_s, arrival_ps),
            prompt_tokens=whole("prompt_tokens", prompt_tokens),
            output_tokens=output,
            predicted_output_tokens=whole("predicted_output_tokens", predicted_output_tokens, output),
            class_index=whole("class_index", class_index),
            priority=whole("priority", priority),
            tbt_limit_ps=ps("tbt_limit", tbt_limit_s, tbt_limit_ps),
            paying=_truths("paying", False if paying is None else paying, n),
            tenant=whole("tenant", tenant),
            prefilled_tokens=whole("prefilled_tokens", prefilled_tokens),
            blocks=blocks,
        )

    @classmethod
    def from_workload(cls, workload: Any, count: int, seed: int, rate: float | None = None) -> Requests:
        """Draw `count` requests of a `tileq_theory.workload.Workload`.

        With `rate` (requests per second) the same draws are stretched in time to that mean rate, so that one seed
        gives common random numbers over a sweep of rates. A class's promised TBT becomes its requests' limit, and
        each class is a tenant.
        """
        count = positive_int("count", count)
        if rate is not None:
            workload = workload.with_rate(positive("rate", rate))
        drawn = workload.sample(np.random.default_rng(seed), count)
        check_span(drawn.arrival_s, count, rate)
        limits = np.array([c.tbt_s or 0.0 for c in workload.classes])
        return cls.from_arrays(
            arrival_s=drawn.arrival_s,
            prompt_tokens=drawn.prompt_tokens,
            output_tokens=drawn.output_tokens,
            class_index=drawn.class_index,
            tenant=drawn.class_index,
            tbt_limit_s=limits[np.asarray(drawn.class_index)],
        )


_ARRAYS = tuple(f.name for f in fields(Requests) if f.name != "blocks")


def _check_blocks(blocks: BlockPaths, tokens: IntArray) -> None:
    """Raise `InputError` unless there is a path for every request, of no more blocks than its tokens fill."""
    if len(blocks) != len(tokens):
        raise InputError(f"blocks holds the paths of {len(blocks)} requests; expected {len(tokens)}, one a request")
    long = blocks.lengths > tokens // blocks.block_tokens
    if np.any(long):
        at = int(np.argmax(long))
        raise InputError(
            f"blocks gives request {at} {blocks.lengths[at]} blocks of {blocks.block_tokens} tokens, and its prompt "
            f"and output have {tokens[at]} tokens; expected only blocks that they fill"
        )


def purpose_rng(purpose: str, seed: int | tuple[int, ...]) -> np.random.Generator:
    """Return the generator of a purpose: independent of `default_rng(seed)` and of every other purpose's.

    Examples
    --------
    >>> bool(purpose_rng("tiers", 1).random() == np.random.default_rng(1).random())
    False
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()),)))


def check_span(arrival_s: Any, count: int, rate_per_s: float | None) -> None:
    """Raise `ClockError` where drawn arrivals end beyond the clock, which the rate is to blame for."""
    last = float(np.max(arrival_s, initial=0.0))
    if not last <= _LATEST_S:
        asked = "their own rate" if rate_per_s is None else f"{rate_per_s:g} requests/s"
        raise ClockError(
            f"{count} requests at {asked} arrive until {last:.3g} s, and the clock ends at {_LATEST_S:g} s; raise the "
            "rate or simulate fewer requests"
        )


def _whole(name: str, values: Any, n: int) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim > 1 or array.size not in (1, n):
        raise InputError(f"{name} has shape {array.shape}; expected one value, or {n}, one a request")
    if array.dtype.kind == "b":
        raise InputError(f"{name} holds truth values; expected whole numbers")
    if array.dtype.kind not in "iu":
        try:
            number = array.astype(float)
        except (TypeError, ValueError):
            raise InputError(f"{name} holds {values!r}; expected whole numbers") from None
        bad = ~np.isfinite(number) | (number != np.floor(number)) | (np.abs(number) > 2**62)
        if np.any(bad):
            at = int(np.argmax(bad))
            given = float(number.ravel()[at])
            raise InputError(f"{name} has the value {given!r} at place {at}; expected whole numbers")
        array = number
    return np.broadcast_to(array.astype(np.int64).reshape(-1), (n,)).copy()


def _truths(name: str, values: Any, n: int) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim > 1 or array.size not in (1, n):
        raise InputError(f"{name} has shape {array.shape}; expected one value, or {n}, one a request")
    if array.dtype.kind != "b" and not (array.dtype.kind in "iu" and bool(np.isin(array, (0, 1)).all())):
        raise InputError(f"{name} holds {array.ravel()[:3].tolist()!r}, ...; expected truth values, or 0 and 1")
    return np.broadcast_to(array.astype(bool).reshape(-1), (n,)).copy()


def _at_least(name: str, values: np.ndarray, least: int, most: int = _LONGEST) -> None:
    bad = (values < least) | (values > most)
    if np.any(bad):
        at = int(np.argmax(bad))
        raise InputError(f"{name} of request {at} is {values[at]}; expected a whole number in [{least}, {most}]")


def _unique(ids: np.ndarray) -> None:
    if len(ids) > 1 and np.all(np.diff(ids) > 0):
        return
    values, counts = np.unique(ids, return_counts=True)
    if len(values) != len(ids):
        twice = values[counts > 1][0]
        raise InputError(f"request id {twice} is given {counts[counts > 1][0]} times; ids must be unique")

"""Kernels that write down what happens: areas, gaps between tokens, thinned samples, the trace of a short run."""

from __future__ import annotations

__all__ = ["add_gap", "add_work", "advance", "advance_many", "gap_bin", "sample", "trace_batch"]

from typing import Any

from tileq_engine.prefix_tree import idle_blocks
from tileq_engine.records import Records

_GAP_FIELDS = 6  # of one group in GS: count, sum high, sum low, least, largest, place of its newest pair
_TRACE_FIELDS = 6
_SHIFT = 24
_LOW = (1 << 24) - 1
_LOW31 = (1 << 31) - 1
_LOW32 = (1 << 32) - 1


def gap_bin(gap: int) -> Any:
    """Return the bin of `gap` ps: exact below 128, then 128 bins an octave (relative error at most 1/256)."""
    v = gap
    o = 0
    if v >> 32 >= 128:
        v >>= 32
        o += 32
    if v >> 16 >= 128:
        v >>= 16
        o += 16
    if v >> 8 >= 128:
        v >>= 8
        o += 8
    if v >> 4 >= 128:
        v >>= 4
        o += 4
    if v >> 2 >= 128:
        v >>= 2
        o += 2
    if v >> 1 >= 128:
        v >>= 1
        o += 1
    return (o << 7) + v


def add_gap(S: Records, GS: Any, GP: Any, GH: Any, gap: int, group: int, weight: int) -> None:
    """Add `weight` gaps of `gap` ps to the group's distribution (pairs or histogram) and to its exact sums."""
    s = S[0]
    if s.now < s.gap_from or s.now > s.gap_to:
        return
    at = group * _GAP_FIELDS
    if GS[at] == 0 or gap < GS[at + 3]:
        GS[at + 3] = gap
    if GS[at] == 0 or gap > GS[at + 4]:
        GS[at + 4] = gap
    GS[at] += weight
    low = GS[at + 2] + (gap & _LOW32) * weight
    GS[at + 1] += (gap >> 32) * weight + (low >> 32)
    GS[at + 2] = low & _LOW32
    if s.gap_mode == 1:
        GH[group * 7296 + gap_bin(gap)] += weight
        return
    newest = GS[at + 5]
    if newest >= 0 and GP[3 * newest] == gap:
        GP[3 * newest + 2] += weight
        return
    j = s.npairs
    GP[3 * j] = gap
    GP[3 * j + 1] = group
    GP[3 * j + 2] = weight
    GS[at + 5] = j
    s.npairs = j + 1


def advance(S: Records, to: int) -> None:
    """Move the areas under number in system, number waiting and tokens left to the instant `to`, exactly."""
    s = S[0]
    dt = to - s.area_t
    if dt <= 0:
        return
    s.area_t = to
    high = dt >> _SHIFT
    rest = dt & _LOW
    low = s.area_n_lo + s.nsys * rest
    s.area_n_hi += s.nsys * high + (low >> _SHIFT)
    s.area_n_lo = low & _LOW
    low = s.area_w_lo + s.nwaiting * rest
    s.area_w_hi += s.nwaiting * high + (low >> _SHIFT)
    s.area_w_lo = low & _LOW
    add_work(S, s.work, dt)


def add_work(S: Records, work: int, dt: int) -> None:
    """Add work * dt, both below 2**62, to the area under the tokens left: three digits of 31 bits, exact."""
    s = S[0]
    w1 = work >> 31
    w0 = work & _LOW31
    d1 = dt >> 31
    d0 = dt & _LOW31
    low = w0 * d0
    middle = w0 * d1 + w1 * d0
    digit = s.area_k_0 + (low & _LOW31)
    s.area_k_0 = digit & _LOW31
    digit = s.area_k_1 + (low >> 31) + (middle & _LOW31) + (digit >> 31)
    s.area_k_1 = digit & _LOW31
    s.area_k_2 += w1 * d1 + (middle >> 31) + (digit >> 31)


def advance_many(S: Records, count: int, duration: int, tokens: int) -> None:
    """Do what `advance` would over `count` iterations of `duration` that serve `tokens` each and see no arrival."""
    s = S[0]
    work = s.work
    twice = 2 * work - tokens * (count - 1)  # of the mean; times count it is even
    if count & 1 == 0:
        add_work(S, twice, (count >> 1) * duration)
    else:
        add_work(S, twice >> 1, count * duration)
    s.work = 0
    advance(S, s.area_t + count * duration)
    s.work = work - count * tokens


def sample(S: Records, SA: Any, start: int, duration: int, used: int) -> None:
    """Keep a sample of the iteration that is about to run, if it is the stride's turn; thin when the buffer is full."""
    s = S[0]
    if s.iters & (s.stride - 1) != 0:  # strides are powers of two
        return
    if s.nsamples == s.samples_cap:
        kept = 0
        for j in range(0, s.nsamples, 2):
            for f in range(s.row):
                SA[kept * s.row + f] = SA[j * s.row + f]
            kept += 1
        s.nsamples = kept
        s.stride *= 2
        if s.iters & (s.stride - 1) != 0:
            return
    at = s.nsamples * s.row
    s.nsamples += 1
    SA[at] = s.iters
    SA[at + 1] = start
    SA[at + 2] = duration
    SA[at + 3] = s.npre
    SA[at + 4] = s.ndec
    SA[at + 5] = s.seqs
    SA[at + 6] = s.nwaiting
    SA[at + 7] = s.nres
    SA[at + 8] = used
    SA[at + 9] = s.work
    SA[at + 10] = s.prefill_tokens
    SA[at + 11] = s.decode_tokens
    if s.tree > 0:
        SA[at + 12] = s.searched_tokens
        SA[at + 13] = s.hit_tokens
        SA[at + 14] = idle_blocks(S, s.total_blocks - used)


def trace_batch(B: Records, S: Records, O: Any, TR: Any, start: int, duration: int) -> None:  # noqa: E741
    """Write down who is in the batch, as far as the trace has room."""
    s = S[0]
    for k in range(s.nres):
        b = B[O[k]]
        if s.ntrace < s.trace_cap and (b.dec == 1 or b.chunk > 0):
            at = s.ntrace * _TRACE_FIELDS
            s.ntrace += 1
            TR[at] = s.iters
            TR[at + 1] = start
            TR[at + 2] = duration
            TR[at + 3] = b.id
            TR[at + 4] = b.chunk
            TR[at + 5] = b.dec

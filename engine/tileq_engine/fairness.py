"""Kernels that keep a tenant's account: its quota, its virtual counter, what it has got, how long it got nothing.

The account of tenant t is a row of `ACCOUNT` integers in the policy's integers P, from S[0].tenants on; there are none
unless S[0].account is 1. The virtual counter is that of Sheng et al., "Fairness in Serving Large Language Models"
(OSDI 2024, Algorithms 2 and 3): prompt tokens are charged at the first admission, output tokens as they come, each at
the tenant's own price, which is the token's price over the tenant's weight. A tenant that joins the queue anew is
lifted to the least counter of those who wait, or to that of whoever left the queue last, so that nobody saves up
credit while idle.
"""

from __future__ import annotations

__all__ = [
    "ACCOUNT",
    "ACCOUNT_FIELDS",
    "FIRST_BACKGROUND",
    "TENANT_SAMPLE",
    "at_quota",
    "credit_tenants",
    "leave_tenant",
    "sample_tenants",
    "seat_tenant",
    "unseat_tenant",
    "welcome_tenant",
    "withdraw_tenant",
]

from typing import Any

from tileq_engine.records import Records

ACCOUNT_FIELDS = (
    "residents",
    "quota",  # most residents at once, 0 for no bound
    "counter",  # virtual tokens got
    "prompt_charge",  # what a prompt token adds to the counter
    "output_charge",
    "waiting",
    "present",  # in the system
    "since",  # when it was served last, or came with nobody of its own in the system
    "starved",  # longest time with work and without a token
    "starved_from",  # when that time began
    "prefilled",  # prompt tokens computed for the first time
    "delivered",  # output tokens
)
ACCOUNT = len(ACCOUNT_FIELDS)
TENANT_SAMPLE = 5  # columns a tenant adds to a sample: prefilled, delivered, present, waiting, counter
FIRST_BACKGROUND = 1 << 60  # counters of tenants of weight 0 begin here: after everybody else's

_ACCOUNT_ROW = 12
_RESIDENTS, _QUOTA, _COUNTER, _PROMPT_CHARGE, _OUTPUT_CHARGE, _QUEUED = 0, 1, 2, 3, 4, 5
_PRESENT, _SINCE, _STARVED, _STARVED_FROM, _PREFILLED, _DELIVERED = 6, 7, 8, 9, 10, 11
_BACKGROUND = 1 << 60
_TENANT_COLUMNS = 5


def at_quota(R: Records, S: Records, P: Any, i: int) -> Any:
    """Return whether the tenant of request `i` has as many residents as it may."""
    at = S[0].tenants + _ACCOUNT_ROW * R[i].tenant
    return P[at + _QUOTA] > 0 and P[at + _RESIDENTS] >= P[at + _QUOTA]


def floor_of_counters(S: Records, P: Any, at: int) -> Any:
    """Return the least counter of the tenants that wait, else that of whose request left last; -1 without either.

    Tenants of weight 0 and the others are not compared with each other.
    """
    s = S[0]
    background = P[at + _COUNTER] >= _BACKGROUND
    least = -1
    for t in range(s.ntenants):
        other = s.tenants + _ACCOUNT_ROW * t
        alike = P[other + _QUEUED] > 0 and (P[other + _COUNTER] >= _BACKGROUND) == background
        if alike and (least < 0 or P[other + _COUNTER] < least):
            least = P[other + _COUNTER]
    if least < 0 and s.last_tenant >= 0:
        last = P[s.tenants + _ACCOUNT_ROW * s.last_tenant + _COUNTER]
        if (last >= _BACKGROUND) == background:
            least = last
    return least


def welcome_tenant(R: Records, S: Records, P: Any, i: int) -> None:
    """Count request `i`, which joins the queue; lift its tenant's counter if nobody of it stood there."""
    s = S[0]
    at = s.tenants + _ACCOUNT_ROW * R[i].tenant
    if P[at + _PRESENT] == 0 and P[at + _SINCE] < R[i].arrival:
        P[at + _SINCE] = R[i].arrival
    P[at + _PRESENT] += 1
    if s.fair == 1 and P[at + _QUEUED] == 0:
        least = floor_of_counters(S, P, at)
        if P[at + _COUNTER] < least:
            P[at + _COUNTER] = least
    P[at + _QUEUED] += 1


def seat_tenant(R: Records, S: Records, P: Any, i: int) -> None:
    """Count request `i` among the residents; its prompt is charged when it becomes one for the first time."""
    s = S[0]
    r = R[i]
    at = s.tenants + _ACCOUNT_ROW * r.tenant
    P[at + _RESIDENTS] += 1
    P[at + _QUEUED] -= 1
    s.last_tenant = r.tenant
    if r.admit < 0 and r.prefill_end < 0:  # not one that came with its KV: that was computed elsewhere
        P[at + _COUNTER] += r.prompt * P[at + _PROMPT_CHARGE]


def unseat_tenant(R: Records, S: Records, P: Any, i: int, cached: int) -> None:
    """Count preempted request `i`, which had `cached` tokens, among those who wait."""
    r = R[i]
    at = S[0].tenants + _ACCOUNT_ROW * r.tenant
    P[at + _RESIDENTS] -= 1
    P[at + _QUEUED] += 1
    if cached > r.seen:
        r.seen = cached


def leave_tenant(R: Records, S: Records, P: Any, i: int) -> None:
    """Count resident `i` out of the system."""
    at = S[0].tenants + _ACCOUNT_ROW * R[i].tenant
    P[at + _RESIDENTS] -= 1
    P[at + _PRESENT] -= 1


def withdraw_tenant(R: Records, S: Records, P: Any, i: int) -> None:
    """Count request `i`, which waits, out of the system: it goes to another node."""
    at = S[0].tenants + _ACCOUNT_ROW * R[i].tenant
    P[at + _QUEUED] -= 1
    P[at + _PRESENT] -= 1


def credit_tenants(
    R: Records,
    B: Records,
    S: Records,
    O: Any,  # noqa: E741
    P: Any,
    start: int,
    steps: int,
    ahead: int,
) -> None:
    """Credit every tenant with what the batch brings it.

    Before the tokens of the iteration that began at `start` are counted (`ahead` 1), or after a macro-step over
    `steps` iterations (`ahead` 0, `start` -1).
    """
    s = S[0]
    for k in range(s.nres):
        b = B[O[k]]
        if b.dec == 0 and b.chunk == 0:
            continue
        r = R[b.id]
        at = s.tenants + _ACCOUNT_ROW * r.tenant
        got = 0
        if b.dec == 1:
            if b.replay == 0:
                got = steps
        else:
            after = b.cached + ahead * b.chunk
            before = after - steps * b.chunk
            if ahead == 1 and after == b.target and s.emit == 1 and b.replay == 0:
                got = 1
            if before < r.seen:
                before = r.seen
            if after > r.prompt:
                after = r.prompt
            if after > before:
                P[at + _PREFILLED] += after - before
        P[at + _DELIVERED] += got
        P[at + _COUNTER] += got * P[at + _OUTPUT_CHARGE]
        starved = start - P[at + _SINCE]
        if starved > P[at + _STARVED]:
            P[at + _STARVED] = starved
            P[at + _STARVED_FROM] = P[at + _SINCE]
        P[at + _SINCE] = s.now


def sample_tenants(S: Records, P: Any, SA: Any) -> None:
    """Write what every tenant has got beside the sample of the iteration that is about to run, if there is one."""
    s = S[0]
    at = (s.nsamples - 1) * s.row
    if s.nsamples == 0 or SA[at] != s.iters:
        return
    at += s.row - _TENANT_COLUMNS * s.ntenants  # behind the columns of every sample
    for t in range(s.ntenants):
        account = s.tenants + _ACCOUNT_ROW * t
        SA[at] = P[account + _PREFILLED]
        SA[at + 1] = P[account + _DELIVERED]
        SA[at + 2] = P[account + _PRESENT]
        SA[at + 3] = P[account + _QUEUED]
        SA[at + 4] = P[account + _COUNTER]
        at += _TENANT_COLUMNS

"""The Lindley recursion on the integer clock: a server that is given whole requests one by one, in order of arrival.

It is `simulator_loop.run_until` with everything left out that cannot happen there: no slots, no queue to order, no
rules to ask, nobody rejected, no bound to reach. `simulator_single` says when it may be used.
"""

from __future__ import annotations

__all__ = ["run_single"]

from typing import Any

from tileq_engine.batch import blocks_for
from tileq_engine.clock import token_ps, with_context_ps
from tileq_engine.records import Records
from tileq_engine.simulator_record import sample

_LOW24 = (1 << 24) - 1
_LOW31 = (1 << 31) - 1


def single_sample(S: Records, SA: Any, start: int, duration: int, prompt: int) -> None:
    """Take the sample that is due before the iteration that serves `prompt`."""
    s = S[0]
    s.npre = prompt
    s.seqs = 1
    s.nres = 1
    sample(S, SA, start, duration, blocks_for(prompt, s.block))
    s.nres = 0


def run_single(S: Records, A: Any, L: Any, SA: Any, admit: Any, finish: Any) -> Any:
    """Serve requests that arrive at `A` with prompts `L` and one output token each; return the end of the last.

    start = max(arrival, end of the request before), end = start + duration. The areas are summed request by request
    (time in system, wait, tokens times time in system), which is exact too. At an arrival more than `most` requests
    wait exactly when the one `most` places before it has not started earlier, so that the peak costs one comparison.
    """
    s = S[0]
    n, w, a, b, beta, e, k, each, context = s.n, s.w, s.a, s.b, s.beta, s.e, s.k, s.s, s.kv_prefill
    c = s.c
    now = 0
    stride = s.stride
    arrived = 0  # requests and their tokens, counted up to the latest sample
    announced = 0
    most = 0
    longest = 0
    tokens = 0
    busy = 0
    n_hi, n_lo, w_hi, w_lo, k_2, k_1, k_0 = 0, 0, 0, 0, 0, 0, 0
    for i in range(n):
        prompt = L[i]
        duration = with_context_ps(
            token_ps(c, w, a, b, beta, prompt), e, k, each, prompt * (prompt + 1), prompt * context
        )
        if now < A[i]:
            now = A[i]
        if i & (stride - 1) == 0:
            while arrived < n and A[arrived] <= now:
                announced += L[arrived]
                arrived += 1
            s.iters, s.nwaiting, s.work, s.prefill_tokens = i, arrived - i - 1, announced - tokens, tokens
            single_sample(S, SA, now, duration, prompt)
            stride = s.stride
        admit[i] = now
        while i >= most and admit[i - most] >= A[i]:
            most += 1
        wait = now - A[i]
        stay = wait + duration
        now += duration
        finish[i] = now
        longest = max(longest, prompt)
        tokens += prompt
        busy += duration
        w_hi += wait >> 24
        w_lo += wait & _LOW24
        n_hi += stay >> 24
        n_lo += stay & _LOW24
        low = prompt * (stay & _LOW31)
        high = prompt * (stay >> 31)
        k_0 += low & _LOW31  # carried over at the end: 2**31 requests would fit
        k_1 += (low >> 31) + (high & _LOW31)
        k_2 += high >> 31
    s.area_n_hi, s.area_n_lo, s.area_w_hi, s.area_w_lo = n_hi, n_lo, w_hi, w_lo
    k_1 += k_0 >> 31
    s.area_k_2, s.area_k_1, s.area_k_0 = k_2 + (k_1 >> 31), k_1 & _LOW31, k_0 & _LOW31
    s.now, s.next, s.iters, s.finished, s.sum_dur, s.prefill_tokens = now, n, n, n, busy, tokens
    s.peak_running, s.peak_waiting, s.peak_blocks = 1, most, blocks_for(longest, s.block)
    return now

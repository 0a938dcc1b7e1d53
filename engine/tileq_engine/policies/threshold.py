"""Exclusive batching with thresholds: THETA and EB+."""

from __future__ import annotations

__all__ = ["best_threshold", "eb_plus", "theta", "theta0"]

import functools
import math

from tileq_engine.config import EngineConfig
from tileq_engine.policies.common import checked_common
from tileq_engine.policy import Policy, Prepared
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError, finite, positive, positive_int
from tileq_theory.iteration_time import IterationTime


def theta0(p0: float, alpha_ratio: float = 1.0) -> float:
    """Return the share theta of slots to free before a prefill: theta/(1-theta) + ln(1-theta) = p0 alpha_p/alpha_d.

    p0 is the chance that a decode step is a request's last, alpha_p/alpha_d the ratio of the constant times of a
    prefill and of a decode iteration. It maximises k/(alpha_p + (alpha_d/p0) ln(1/(1-k/N))), the completions a
    cycle brings per constant time it spends (Zhang et al., arXiv 2606.00516, reconstructed).

    Examples
    --------
    >>> round(theta0(1 / 200), 7)
    0.0936781
    """
    target = positive("p0", p0) * positive("alpha_ratio", alpha_ratio)
    low, high = 0.0, 1.0 - 1e-15
    for _ in range(200):
        middle = (low + high) / 2
        if middle / (1 - middle) + math.log1p(-middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def best_threshold(slots: int, p0: float, alpha_ratio: float = 1.0) -> int:
    """Return k* = max(1, floor(theta0 N)): 11 at N = 128, p0 = 1/200, ratio 1."""
    return max(1, math.floor(theta0(p0, alpha_ratio) * positive_int("slots", slots)))


def _threshold(
    k: int | None,
    p0: float | None,
    alpha_ratio: float,
    crossover: bool,
    policy: Policy,
    requests: Requests,
    time: IterationTime,
    config: EngineConfig,
) -> Prepared:
    mean = float(requests.output_tokens.mean()) if len(requests) else 1.0
    ends = p0 if p0 is not None else min(1.0, 1.0 / max(mean, 1.0))
    want = k if k is not None else best_threshold(config.max_num_seqs, ends, alpha_ratio)
    if want > config.max_num_seqs:
        raise InputError(f"k is {want}, more than the {config.max_num_seqs} slots; no prefill would ever start")
    mixes = crossover and len(requests) > 0 and _mixing_is_faster(want, ends, requests, time, config)
    return Prepared(requests, {"want": want, "level": int(mixes)})


def _mixing_is_faster(k: int, p0: float, requests: Requests, time: IterationTime, config: EngineConfig) -> bool:
    """EB+'s crossover: completions per second of full mixed batches against those of the exclusive cycle.

    Mixed: N residents decode, N p0 end per iteration and are replaced, so an iteration carries N + N p0 P tokens
    (more iterations when the budget is smaller). Exclusive: k prompts in budgets, then decodes until k of N have
    ended, ln(N/(N-k))/p0 iterations of N - k/2 residents on average. The source's own test is not printed; this is
    a reconstruction from the same two throughputs.
    """
    n = config.max_num_seqs
    prompt = float(requests.prompt_tokens.mean())
    context = prompt + 0.5 / p0
    budget = max(config.token_budget, n + 1)
    carried = n * p0 * prompt
    chunks = max(1.0, carried / (budget - n))
    mixed_s = float(time(min(n + carried, budget), carried / chunks * prompt / 2, n * context, n))
    mixed = n * p0 / (chunks * mixed_s)
    fills = math.ceil(k * prompt / config.token_budget)
    fill_s = fills * float(time(k * prompt / fills, k * prompt * prompt / 2 / fills, 0.0, k / fills))
    decodes = math.log(n / (n - k)) / p0 if k < n else math.log(n + 1) / p0
    alive = n - k / 2
    exclusive = k / (fill_s + decodes * float(time(alive, 0.0, alive * context, alive)))
    return mixed > exclusive


def theta(
    *,
    k: int | None = None,
    p0: float | None = None,
    alpha_ratio: float = 1.0,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """THETA: threshold-based exclusive batching (Zhang, Nie, Pang, Ma, Wu, arXiv 2606.00516).

    Decode, all residents in every iteration, until `k` of the max_num_seqs slots are free; then prefill `k` waiting
    requests (those there are, if fewer), in iterations of their own of up to the token budget each; then decode
    again. k defaults to floor(theta0 N), which balances the constant cost of prefill iterations against slots that
    stand empty. It optimises throughput among exclusive policies when constants dominate. It fails on TTFT at light
    load near full slots, where a request waits for k free ones, on TBT during a refill, and against mixing when
    tiles are small.
    """
    _check_shares(p0, alpha_ratio)
    return Policy(
        name="theta",
        mixing="mix_threshold",
        params={"k": k, "p0": p0, "alpha_ratio": alpha_ratio},
        scalars={"alloc": 1, "to_front": 1},
        prepare=functools.partial(_threshold, _positive(k), p0, alpha_ratio, False),
        **checked_common(token_budget, max_num_seqs),
    )


def eb_plus(
    *,
    k: int | None = None,
    p0: float | None = None,
    alpha_ratio: float = 1.0,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """EB+: exclusive batching with a crossover to mixing (Zhang, Nie, Pang, Ma, Wu, arXiv 2606.00516).

    THETA as long as its cycle completes more requests per second than full mixed batches do under the iteration
    time at hand and the requests' mean lengths; otherwise decodes first and chunks in the same batch, as Sarathi.
    The test is made once, before the run. It optimises throughput over the two families. It fails where lengths
    change during a run, since the choice does not.
    """
    _check_shares(p0, alpha_ratio)
    return Policy(
        name="eb_plus",
        mixing="mix_threshold",
        params={"k": k, "p0": p0, "alpha_ratio": alpha_ratio},
        scalars={"alloc": 1, "to_front": 1},
        prepare=functools.partial(_threshold, _positive(k), p0, alpha_ratio, True),
        **checked_common(token_budget, max_num_seqs),
    )


def _positive(k: int | None) -> int | None:
    return None if k is None else positive_int("k", k)


def _check_shares(p0: float | None, alpha_ratio: float) -> None:
    if p0 is not None and not 0 < finite("p0", p0) <= 1:
        raise InputError(f"p0 is {p0!r}; expected a probability in (0, 1]")
    positive("alpha_ratio", alpha_ratio)

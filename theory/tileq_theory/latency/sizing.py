r"""Sizing under TTFT and ITL by a state-dependent M/M/1/K queue (Ramani and Tantawi's model).

n prompt and m output tokens, iteration time alpha + B delta at B requests in the batch (ms):

    nc(B) = least j >= 1 with (j + m)(8192 - n/j)/(n + m) >= B                           prefill chunks
    w_p = (beta + gamma (nc + 1)/2) n,   w_d = beta m + gamma m (n + (m + 1)/2),   delta = (w_p + w_d)/(nc + m)
    tau(B) = (nc + m)(alpha + B delta),  mu_B = B/tau(B), constant beyond B_max

Birth-death on 0..B_max + Q with births lambda. With X = E[min(N, B_max)] and thr = lambda (1 - p_K):

    W = (E[N] - X)/thr,  S = X/thr,  prefill = nc (alpha + (X - 1) delta) + w_p,  ITL = (S - prefill)/m,
    TTFT = W + prefill + ITL

8192 is the token budget of an iteration (a parameter here). nc and delta of the averages are those of the mean batch X,
rounded up: a reading, the sources leave it open. With nc fixed TTFT and ITL rise with the rate; where X asks for one
chunk more ITL falls. The largest rate that meets both is found piece by piece, from the fastest.
"""

from __future__ import annotations

__all__ = ["SizingModel", "SizingPoint"]

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, nonnegative, positive, positive_int
from tileq_theory.latency.birth_death import stationary


@dataclass(frozen=True, slots=True)
class SizingPoint:
    """The model at one rate; times in ms.

    Parameters
    ----------
    rate_per_s, throughput_per_s
        Offered and carried requests per second.
    blocked
        p_K, share of arrivals that find the queue full.
    in_system, in_batch
        E[N] and X.
    waiting_ms, service_ms, prefill_ms, itl_ms, ttft_ms
        W, S, prefill, ITL, TTFT.
    """

    rate_per_s: float
    throughput_per_s: float
    blocked: float
    in_system: float
    in_batch: float
    waiting_ms: float
    service_ms: float
    prefill_ms: float
    itl_ms: float
    ttft_ms: float


@dataclass(frozen=True, slots=True)
class SizingModel:
    """One replica.

    Parameters
    ----------
    alpha_ms
        Fixed time of an iteration, 0 or more.
    beta_ms, gamma_ms
        Time a token through the linear layers, and a token pair of attention, 0 or more; some time above 0.
    prompt_tokens, output_tokens
        n >= 1 and m >= 1.
    max_batch
        B_max >= 1, requests in a batch.
    queue_places
        Q >= 0, requests that may wait.
    token_budget
        Tokens of an iteration (8192 in the source).

    Examples
    --------
    >>> model = SizingModel(alpha_ms=12, beta_ms=0.05, gamma_ms=0.0005, prompt_tokens=128, output_tokens=512,
    ...                     max_batch=48, queue_places=128)
    >>> best = model.largest_rate(ttft_ms=60)
    >>> round(best.rate_per_s, 5), round(best.waiting_ms, 3), round(best.in_batch, 3), round(best.itl_ms, 3)
    (2.94946, 14.219, 30.136, 19.905)
    """

    alpha_ms: float
    beta_ms: float
    gamma_ms: float
    prompt_tokens: int
    output_tokens: int
    max_batch: int
    queue_places: int
    token_budget: int = 8192

    def __post_init__(self) -> None:
        for name in ("alpha_ms", "beta_ms", "gamma_ms"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))
        for name in ("prompt_tokens", "output_tokens", "max_batch", "token_budget"):
            object.__setattr__(self, name, positive_int(name, getattr(self, name)))
        places = nonnegative("queue_places", self.queue_places)
        if places != int(places):
            raise InputError(f"queue_places is {self.queue_places!r}; expected a whole number of 0 or more")
        object.__setattr__(self, "queue_places", int(places))
        if self.alpha_ms + self.beta_ms + self.gamma_ms <= 0:
            raise InputError("alpha_ms, beta_ms and gamma_ms are all 0; expected that an iteration takes some time")

    def chunks(self, batch: int) -> int:
        """Return nc(B), the least number of prefill chunks with which B requests share the token budget."""
        n, m, budget = self.prompt_tokens, self.output_tokens, self.token_budget
        # (j + m)(T - n/j) >= B (n + m)  <=>  T j^2 + (T m - n - B (n + m)) j - n m >= 0: the larger root
        linear = budget * m - n - batch * (n + m)
        root = (-linear + math.sqrt(linear * linear + 4.0 * budget * n * m)) / (2 * budget)
        guess = max(1, math.ceil(root) - 1)
        while (guess + m) * (budget * guess - n) < batch * (n + m) * guess:
            guess += 1
        return guess

    def token_time_ms(self, chunks: int) -> float:
        """Return delta, the time that one more request adds to an iteration, ms."""
        return (self._prefill_work(chunks) + self._decode_work()) / (chunks + self.output_tokens)

    def service_rates_per_ms(self) -> Float[np.ndarray, "batch"]:
        """Return mu_1, ..., mu_Bmax, requests per ms."""
        rates = []
        for b in range(1, self.max_batch + 1):
            nc = self.chunks(b)
            rates.append(b / ((nc + self.output_tokens) * (self.alpha_ms + b * self.token_time_ms(nc))))
        return np.array(rates)

    @property
    def saturation_per_s(self) -> float:
        """Requests per second that a full batch completes, mu_Bmax."""
        return 1000 * float(self.service_rates_per_ms()[-1])

    def at(self, rate_per_s: float) -> SizingPoint:
        """Return the model at a rate above 0 (any load: the queue is finite).

        Raises
        ------
        InputError
            A rate that is not above 0.
        """
        return self._at(positive("rate_per_s", rate_per_s), self.service_rates_per_ms())

    def _at(self, rate_per_s: float, rates: np.ndarray) -> SizingPoint:
        rate, size = rate_per_s / 1000, self.max_batch + self.queue_places
        deaths = rates[np.minimum(np.arange(size), self.max_batch - 1)]
        law = stationary(np.full(size, rate), deaths)
        states = np.arange(size + 1)
        mean, batch = float(law @ states), float(law @ np.minimum(states, self.max_batch))
        carried = rate * (1 - float(law[-1]))
        batch = min(batch, float(self.max_batch))  # rounding must not ask for the chunks of a batch beyond the largest
        nc = self.chunks(max(1, math.ceil(batch)))
        waiting, service = max(mean - batch, 0.0) / carried, batch / carried
        prefill = nc * (self.alpha_ms + (batch - 1) * self.token_time_ms(nc)) + self._prefill_work(nc)
        itl = (service - prefill) / self.output_tokens
        return SizingPoint(
            rate_per_s, 1000 * carried, float(law[-1]), mean, batch, waiting, service, prefill, itl,
            waiting + prefill + itl,
        )  # fmt: skip

    def largest_rate(
        self, *, ttft_ms: float | None = None, itl_ms: float | None = None, blocked: float | None = None
    ) -> SizingPoint:
        """Return the model at the largest rate that meets every limit given.

        Parameters
        ----------
        ttft_ms, itl_ms
            Limits of mean TTFT and ITL, ms.
        blocked
            Limit of the share turned away.

        Raises
        ------
        InputError
            No limit given, or one that even a lone request does not meet (its value there is named).
        """
        limits = {"ttft_ms": ttft_ms, "itl_ms": itl_ms, "blocked": blocked}
        given = {name: positive(name, value) for name, value in limits.items() if value is not None}
        if given.get("blocked", 0.0) >= 1:
            raise InputError(f"blocked is {blocked!r}; expected a share below 1")
        if not given:
            raise InputError("no limit given; expected ttft_ms, itl_ms or blocked")
        rates = self.service_rates_per_ms()
        low = 1e-9 * self.saturation_per_s
        alone = self._at(low, rates)
        for name, limit in given.items():
            if getattr(alone, name) > limit:
                raise InputError(
                    f"{name} is {limit:g}, but a request that is alone has {getattr(alone, name):.6g}; raise the limit"
                )

        def meets(rate: float) -> bool:
            point = self._at(rate, rates)
            return all(getattr(point, name) <= limit for name, limit in given.items())

        if meets(1e6 * self.saturation_per_s):
            told = ", ".join(f"{name} {limit:g}" for name, limit in given.items())
            raise InputError(f"limits ({told}) hold at every rate, because a full queue turns the rest away")
        # one chunk more spreads the prefill and lets the ITL fall: pieces of one chunk count each, the fastest first
        end = math.inf
        for start in (*self._chunk_changes(rates), low):
            if meets(start):
                return self._at(_last(meets, start, min(end, 1e6 * self.saturation_per_s)), rates)
            end = start
        raise AssertionError("a request that is alone meets the limits")

    def _chunk_changes(self, rates: np.ndarray) -> Iterator[float]:
        """Yield the rates (a second) just above those where the mean batch asks for more chunks, from the largest."""
        high = 1e6 * self.saturation_per_s
        for b in range(self.max_batch, 1, -1):
            if self.chunks(b) > self.chunks(b - 1):
                high = self._rate_of_batch(b - 1, high, rates)
                yield high * (1 + 1e-12)

    def _rate_of_batch(self, batch: int, high: float, rates: np.ndarray) -> float:
        """Return the last rate up to `high` at which the mean batch is at most `batch`."""
        return _last(lambda rate: self._at(rate, rates).in_batch <= batch, 0.0, high)

    def _prefill_work(self, chunks: int) -> float:
        return (self.beta_ms + self.gamma_ms * (chunks + 1) / 2) * self.prompt_tokens

    def _decode_work(self) -> float:
        n, m = self.prompt_tokens, self.output_tokens
        return self.beta_ms * m + self.gamma_ms * m * (n + (m + 1) / 2)


def _last(good: Callable[[float], bool], low: float, high: float) -> float:
    """Return the last good rate between one that is (or 0) and one beyond, to 1e-13 of itself; `high` if all are."""
    if good(high):
        return high
    for _ in range(200):
        middle = (low + high) / 2 if high < 4 * low or low == 0 else math.sqrt(low * high)
        low, high = (middle, high) if good(middle) else (low, middle)
        if high - low <= 1e-13 * high:
            break
    return low

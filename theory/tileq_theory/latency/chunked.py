r"""TTFT and TBT of chunked mixing (Sarathi-Serve, vLLM v1): an approximation in closed steps.

One node, Poisson arrivals, token budget b. Every iteration serves all m residents and gives what the budget leaves,
c = b - m tokens, to prompts. Two kinds of iteration then alternate: *mixed* of b tokens (t_x seconds) while prompt
tokens wait, and *decode-only* (t_d). Reconstruction, this library's own:

1. Means by fixed point. Residents m = lambda D tau (Little), tau = 1/(rho/t_x + (1 - rho)/t_d) the mean iteration, rho
   the share of time in mixed iterations; in a queue of prompts a token takes theta = t_x/c; alone, a prompt takes
   S0 = floor(P/c) t_x + t(m + remainder); rho = lambda [rho theta E[P] + (1 - rho) E[S0]].
   t_x and t_d are means over a Poisson number of residents.
2. Waiting of prompts by M/G/1 with vacations: theta P is the service, a decode-only iteration the vacation (half of it
   is waited for when residents are there), FCFS by Pollaczek-Khinchine or shortest prompt first by Cobham's formula.
3. A prompt that finds a queue ends at an iteration's end, t_x/2 later on average; TTFT = waiting + own prefill + that.
4. TBT is the mixture of iteration lengths as residents see them (each iteration once per resident); a chunk costs
   attention by its place in its prompt.

What it leaves out: correlation of residents with the queue, memory limits, the cap on sequences (refused where the mean
comes near it), and several nodes.

Error against the simulator (`tools/measure_chunked_latency.py`: Sarathi-Serve, first come first served, 8 replications
of 8000 requests a point): model/simulated - 1 with the half width of the simulation's 99 % interval, in per cent; load
as a share of the saturated rate.

    workload  load   TTFT mean    TTFT p99     TBT mean    TBT p99
    even      .3    -1.5 +- .7   -1.6 +- 3    +.1 +- .2    .0 +- .1     U(100, 900), geometric(100), b 512
              .5    -1.2 +- 2    +2.9 +- 6    +.4 +- .4   -.1 +- .1
              .7    +1.4 +- 4    +6.0 +- 10   +.7 +- .7   -.1 +- .1
              .8    +3.9 +- 5    +7.9 +- 13   +.6 +- .9   -.2 +- .2
              .9    +3.7 +- 11   +12 +- 11    +.5 +- 1.3  -.1 +- .2
    tiles     .3    -2.4 +- .5   -1.3 +- 2    -.2 +- .2    .0 +- .1    U(10, 300), geometric(150), Dai's tiles, b 256
              .5    -3.2 +- 1.4  +4.6 +- 4    -.8 +- .4    .0 +- .1
              .7     .0 +- 3     +10 +- 8    -1.0 +- .8    .0 +- .1
              .8    +2.3 +- 6    +10 +- 14   -1.4 +- 1.3   .0 +- .1
              .9    -4.8 +- 16   -11 +- 34   -2.0 +- 1.8   .0 +- .1
    heavy     .3     -.2 +- 4    -8.9 +- 10   -.1 +- .7  -1.0 +- .3    log-normal (6.5, 1), (5, .8), pair time, b 1024
              .5     -.5 +- 5    -8.9 +- 12   +.1 +- 1.3  -.8 +- .7
              .7     -.6 +- 8    -9.0 +- 13    .0 +- 2.7 -1.2 +- 1.2
              .8    -1.5 +- 10   -12 +- 21    -.2 +- 4   +2.0 +- 1.5
              .9    -8.0 +- 31   -16 +- 39    -.3 +- 7    +.2 +- 2.1

Shortest prompt first: mean TTFT within 2 % at .5 and .8. Where it fails: from a load of .9 on TTFT is not known better
than the simulation's own 10 to 40 %; the p99 of TTFT is 9 to 16 % small under heavy tails at every load, and about 10 %
large from .7 on elsewhere. It is not for policies that serve prefills first or put decodes off: under Orca with chunks
or SLAI with slack limits TTFT is smaller (the model is 5 % above at .5, 43 % at .8), mean TBT larger (the model is 19 %
and 44 % below) and the p99 of TBT several times what the model says.
"""

from __future__ import annotations

__all__ = ["ChunkedLatency", "chunked_latency", "chunked_saturation_per_s"]

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_theory.capacity import Limits
from tileq_theory.capacity.single import single_level_rate
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import InputError, SolveError, instance, positive, positive_int
from tileq_theory.iteration_time import IterationTime
from tileq_theory.latency.chunked_state import fixed_point
from tileq_theory.latency.mg1 import mg1
from tileq_theory.latency.service import ServiceLaw
from tileq_theory.latency.waiting import waiting_law
from tileq_theory.lengths.base import JointLaw

Order = Literal["fcfs", "spf"]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedLatency:
    """What the approximation says of one node.

    Parameters
    ----------
    load
        rho, share of time in mixed iterations.
    residents
        Mean number of decoding requests.
    mixed_s, decode_s
        Mean length of a mixed and of a decode-only iteration, seconds.
    ttft_s, tbt_s, e2e_s
        Means, seconds.
    waiting_s
        Mean time before the first prefill chunk, seconds.
    tbt_values_s, tbt_shares
        Law of the time between tokens.
    """

    load: float
    residents: float
    mixed_s: float
    decode_s: float
    ttft_s: float
    tbt_s: float
    e2e_s: float
    waiting_s: float
    tbt_values_s: Float[np.ndarray, "value"]
    tbt_shares: Float[np.ndarray, "value"]
    prompt: ServiceLaw
    rate_per_s: float

    def tbt_quantile_s(self, probability: float) -> float:
        """Return the smallest t with P(TBT <= t) >= probability, 0 < probability < 1."""
        if not 0 < probability < 1:
            raise InputError(f"probability is {probability!r}; expected a number between 0 and 1")
        order = np.argsort(self.tbt_values_s)
        upto = np.cumsum(self.tbt_shares[order])
        at = min(int(np.searchsorted(upto, probability * upto[-1])), order.size - 1)
        return float(self.tbt_values_s[order][at])

    def ttft_quantile_s(self, probability: float) -> float:
        """Return a quantile of TTFT (FCFS): M/G/1 waiting plus own prefill, convolved, plus the mean alignment."""
        if not 0 < probability < 1:
            raise InputError(f"probability is {probability!r}; expected a number between 0 and 1")
        rate = self.load / self.prompt.mean_s
        align = max(self.ttft_s - self.prompt.mean_s - mg1("fifo", rate_per_s=rate, service=self.prompt).waiting_s, 0.0)
        horizon = 8 * (self.ttft_s + self.prompt.mean_s)
        for _ in range(12):
            waiting = waiting_law(rate_per_s=rate, service=self.prompt, horizon_s=horizon, steps=2048)
            own = np.diff(1 - self.prompt.survival(waiting.times_s), prepend=0.0)
            below = np.convolve(own, 1 - waiting.tail)[: waiting.times_s.size]
            if below[-1] > 1 - (1 - probability) / 4:
                return align + float(np.interp(probability, below, waiting.times_s))
            horizon *= 2
        raise SolveError(f"probability {probability!r} of TTFT lies beyond {horizon:g} s; ask for a smaller one")


def chunked_saturation_per_s(
    lengths: JointLaw, time: IterationTime, *, token_budget: int, convention: TokenConvention = "engine"
) -> float:
    """Return the rate at which every iteration is full, requests per second (single-level capacity of the budget)."""
    demand = lengths.demand(chunk_tokens=token_budget, convention=convention)
    limits = Limits(max_batch_tokens=token_budget)
    return float(single_level_rate(time, demand, limits, token_budget)[0])


def chunked_latency(
    *,
    rate_per_s: float,
    lengths: JointLaw,
    time: IterationTime,
    token_budget: int,
    max_num_seqs: int | None = None,
    order: Order = "fcfs",
    convention: TokenConvention = "engine",
) -> ChunkedLatency:
    """Return approximate TTFT and TBT of a decode-first chunked policy on one node.

    Parameters
    ----------
    rate_per_s
        lambda > 0, Poisson.
    lengths
        Joint law of prompt and output; the prompt with a second moment.
    time
        Iteration time.
    token_budget, max_num_seqs
        b, tokens; sequences of a batch (None: no cap).
    order
        "fcfs", or "spf" (shortest prompt first).
    convention
        "engine": the last chunk emits the first token.

    Raises
    ------
    InputError
        A rate at or above saturation, a mean number of requests near `max_num_seqs`, or a parameter outside its domain.

    Examples
    --------
    >>> from tileq_theory.lengths import Geometric, Independent, Uniform
    >>> law = Independent(Uniform(100, 900), Geometric(100))
    >>> t = IterationTime(launch_s=0.004, weight_floor_s=0.008, token_s=3e-5)
    >>> light = chunked_latency(rate_per_s=2.0, lengths=law, time=t, token_budget=512)
    >>> 0.02 < light.ttft_s < 0.05, light.tbt_quantile_s(0.99) > light.tbt_quantile_s(0.5)
    (True, True)
    """
    instance("time", time, IterationTime)
    instance("lengths", lengths, JointLaw)
    if max_num_seqs is not None:
        positive_int("max_num_seqs", max_num_seqs)
    rate, budget = positive("rate_per_s", rate_per_s), positive_int("token_budget", token_budget)
    if order not in ("fcfs", "spf"):
        raise InputError(f"order is {order!r}; expected 'fcfs' or 'spf'")
    demand = lengths.demand(chunk_tokens=budget, convention=convention)
    most = chunked_saturation_per_s(lengths, time, token_budget=budget, convention=convention)
    if rate >= most:
        raise InputError(f"rate_per_s is {rate:.6g}; expected it below {most:.6g}/s, where every iteration is full")
    state = fixed_point(rate, lengths.prompt_law, demand, time, budget)
    prompt = ServiceLaw.from_lengths(lengths.prompt_law, seconds_per_token=state.token_s)
    load = state.load
    busy = mg1("fifo" if order == "fcfs" else "sjf", rate_per_s=load / prompt.mean_s, service=prompt)
    present = -math.expm1(-state.residents)
    vacation = (1 - load) * state.decode_s / 2 * present
    own = (1 - load) * state.alone_s + load * (prompt.mean_s + state.mixed_s / 2)
    waiting = busy.waiting_s + vacation
    ttft = waiting + own
    in_prefill = rate * ttft
    if max_num_seqs is not None and state.residents + in_prefill + 2 * math.sqrt(state.residents) > max_num_seqs:
        raise InputError(
            f"about {state.residents + in_prefill:.4g} requests are active at this rate and max_num_seqs is "
            f"{max_num_seqs}; the approximation leaves the cap out: raise it or lower the rate"
        )
    values, shares = state.gap_values_s, state.gap_shares
    # the output of a request under the paper's convention needs one more decode for its first token
    first = ttft if convention == "engine" else ttft + state.iteration_s
    steps = demand.decode_tokens - (0 if convention == "engine" else 1)
    return ChunkedLatency(
        load, state.residents, state.mixed_s, state.decode_s, first, float(values @ shares),
        first + steps * state.iteration_s, waiting, values, shares, prompt, rate,
    )  # fmt: skip

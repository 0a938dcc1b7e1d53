"""Laws of waiting and TTFT: closed forms, means, two methods against each other, the simulation's quantiles, errors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from chain_reference import System, run
from scipy.stats import t as student

from tileq_theory import Fixed, Geometric, InputError, IterationTime
from tileq_theory.chain import (
    BatchRule,
    ChainSystem,
    DecodeFirst,
    LatencyLaw,
    Offer,
    PrefillFirst,
    RadRule,
    ThresholdRule,
    chain_capacity,
    iteration_chain,
    ttft_law,
    wait_distribution,
    wait_time_law,
)

DECIMAL = IterationTime(launch_s=0.008, tile_s=0.004, tile_tokens=16, token_s=5e-5, sequence_s=1e-4)
ODD = IterationTime(launch_s=0.008 / math.sqrt(2), token_s=5e-5 * math.pi, sequence_s=1e-3 / math.e)


def system(rule: BatchRule, *, residents: int = 4, convention: str = "engine", mean: float = 9.0) -> ChainSystem:
    return ChainSystem(
        time=DECIMAL,
        rule=rule,
        residents=residents,
        prompt_tokens=16,
        outputs=Geometric(mean=mean),
        convention=convention,
    )  # type: ignore[arg-type]


def one_token(rate: float, seconds: float = 0.5) -> tuple[LatencyLaw, LatencyLaw]:
    chain = ChainSystem(
        time=IterationTime.constant(seconds), rule=PrefillFirst(), residents=1, prompt_tokens=1, outputs=Fixed(1)
    )
    answer = iteration_chain(chain, rate_per_s=rate)
    return wait_time_law(answer), ttft_law(answer)


@pytest.mark.parametrize("rho", [0.2, 0.6, 0.9])
def test_m_d_1_is_exact_at_every_tick(rho: float) -> None:
    # Erlang: P(W <= t) = (1 - rho) sum_n (lambda (n D - t))^n e^(-lambda (n D - t))/n! over n D <= t
    rate = 2 * rho
    wait, ttft = one_token(rate)
    for k in range(0, 1500, 97):
        t = k * wait.tick_s
        terms = [(rate * (n / 2 - t), n) for n in range(int(2 * t + 1e-9) + 1)]
        exact = (1 - rho) * math.fsum(math.exp(-u) * u**n / math.factorial(n) for u, n in terms)
        low, high = wait.cdf_bounds(t)
        assert abs(wait.cdf(t) - exact) < 1e-8
        assert low - 1e-12 <= exact <= high + 1e-12 and high - low < 1e-8
        assert abs(ttft.cdf(t + 0.5) - exact) < 1e-8  # the prefill is the whole service
    # between ticks the bounds hold too
    t = 0.3
    inside = (1 - rho) * math.exp(rate * t)
    assert wait.cdf_bounds(t)[0] <= inside <= wait.cdf_bounds(t)[1]


RULES = [DecodeFirst(), DecodeFirst(40, 2), PrefillFirst(40), RadRule(16), ThresholdRule(2)]


@pytest.mark.parametrize("convention", ["engine", "paper"])
@pytest.mark.parametrize("rule", RULES)
def test_means_are_those_of_the_stationary_law(rule: BatchRule, convention: str) -> None:
    one = system(rule, convention=convention)
    answer = iteration_chain(one, rate_per_s=0.8 * chain_capacity(one))
    for law, mean in ((wait_time_law(answer), answer.mean_wait_s), (ttft_law(answer), answer.mean_ttft_s)):
        assert law.stretch < 1e-12 and law.misplaced < 1e-5 and law.lost < 1e-8
        assert law.mean_s == mean
        # what is left of the first iteration is rounded up: to first order half a tick, for those who find a busy node
        ticks = law.tick_s * float((1 - law.at_ticks).sum())
        assert math.isclose(ticks - law.tick_s / 2, mean, abs_tol=law.tick_s * (0.05 + answer.idle_share))
        assert np.all(np.diff(law.at_ticks) >= 0)


@pytest.mark.parametrize("rule", [DecodeFirst(), PrefillFirst(40), RadRule(16)])
def test_two_methods_find_the_same_wait(rule: BatchRule) -> None:
    # the transform, inverted, knows nothing of ticks; its kinks cost it some 5e-4
    one = system(rule, residents=3)
    answer = iteration_chain(one, rate_per_s=0.7 * chain_capacity(one))
    law = wait_time_law(answer)
    times = law.tick_s * np.arange(0, 8000, 400)
    assert np.abs(wait_distribution(answer, times) - [law.cdf(float(t)) for t in times]).max() < 2e-3


def test_lengths_without_a_common_measure_are_bounded() -> None:
    # the coarse clock's bounds must hold the fine clock's: nothing proves them right but that they are nested
    odd = ChainSystem(time=ODD, rule=DecodeFirst(), residents=4, prompt_tokens=16, outputs=Geometric(mean=9.0))
    answer = iteration_chain(odd, rate_per_s=0.8 * chain_capacity(odd))
    for make in (wait_time_law, ttft_law):
        coarse, fine = make(answer, resolution=32), make(answer, resolution=1024)
        assert coarse.stretch > fine.stretch > 1e-9
        for t in np.linspace(0.001, 1.0, 60):
            (low, high), (finer_low, finer_high) = coarse.cdf_bounds(float(t)), fine.cdf_bounds(float(t))
            middle = fine.cdf(float(t))
            assert low - 1e-9 <= middle <= high + 1e-9
            assert finer_low - 1e-9 <= middle <= finer_high + 1e-9
            assert finer_high - finer_low < high - low + 1e-9


@dataclass(frozen=True)
class Case:
    rule: BatchRule
    discipline: str
    residents: int
    convention: str
    load: float


CASES = [
    Case(DecodeFirst(), "decode-first", 4, "engine", 0.8),
    Case(DecodeFirst(), "decode-first", 6, "paper", 0.6),
    Case(PrefillFirst(), "prefill-first", 4, "paper", 0.8),
    Case(RadRule(16), "rad", 5, "engine", 0.7),
    Case(RadRule(16), "rad", 4, "paper", 0.7),
]
LEVELS, REPLICATIONS, REQUESTS = (0.5, 0.9, 0.99), 12, 4000


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.discipline}-{c.convention}")
def test_quantiles_are_those_of_the_simulation(case: Case) -> None:
    """Share of requests within the exact quantile; 30 intervals of 1 - .01/30 each: false alarm 1 % in all."""
    one = system(case.rule, residents=case.residents, convention=case.convention)
    rate = case.load * chain_capacity(one)
    answer = iteration_chain(one, rate_per_s=rate)
    laws = (wait_time_law(answer), ttft_law(answer))
    model = System(
        case.discipline,  # type: ignore[arg-type]
        case.residents,
        case.convention,  # type: ignore[arg-type]
        lambda n, m: 0.008 + 0.004 * -(-n // 16) + 5e-5 * n + 1e-4 * m,
        lambda rng, n: rng.geometric(1 / 9, n),
        lambda rng, n: np.full(n, 16),
        tile=16,
    )
    shares = np.zeros((REPLICATIONS, 2, len(LEVELS)))
    expected = np.zeros((2, len(LEVELS)))
    for r in range(REPLICATIONS):
        waits, firsts, _ = run(model, rate, REQUESTS, 77 + r)
        for i, (law, values) in enumerate(zip(laws, (waits, firsts), strict=True)):
            for j, p in enumerate(LEVELS):
                # at the tick after the quantile, a hair on (times are sums of floats): F is exact there
                tick = math.ceil(law.quantile(p) / law.tick_s - 1e-9)
                shares[r, i, j] = np.mean(values <= (tick + 1e-6) * law.tick_s)
                expected[i, j] = law.at_ticks[tick]
    t = student.ppf(1 - 0.005 / 30, REPLICATIONS - 1)
    half = t * shares.std(axis=0, ddof=1) / math.sqrt(REPLICATIONS)
    assert (half < 0.1).all(), "intervals too wide to tell anything"
    assert (np.abs(shares.mean(axis=0) - expected) <= half).all(), (shares.mean(axis=0), expected, half)


def test_a_finite_room_conditions_on_being_let_in() -> None:
    # M/D/1/K with K = 2 places (one waits): the wait of those let in is 0 or what is left of one service
    one = ChainSystem(
        time=IterationTime.constant(0.5),
        rule=PrefillFirst(),
        residents=1,
        prompt_tokens=1,
        outputs=Fixed(1),
        waiting_room=1,
    )
    answer = iteration_chain(one, rate_per_s=1.2)
    law = wait_time_law(answer)
    assert law.cdf(0.5) > 1 - 1e-8
    assert math.isclose(law.cdf(0.0), answer.idle_share / (1 - answer.loss), rel_tol=1e-9)
    ticks = law.tick_s * (float((1 - law.at_ticks).sum()) - (1 - law.cdf(0.0)) / 2)
    assert math.isclose(ticks, answer.mean_wait_s, abs_tol=1e-5)
    with pytest.raises(InputError, match="waiting_room"):
        ttft_law(answer)


class Impatient(BatchRule):
    """Takes one prompt in, or three where three wait: those behind decide about those before them."""

    def offer(self, waiting: int, decoding: int, residents: int) -> Offer:
        """Return nothing where one waits alone."""
        return Offer(0 if waiting == 1 and decoding else min(residents - decoding, 3))

    def token_limit(self) -> float:
        """Return inf."""
        return math.inf


def test_questions_without_an_answer() -> None:
    one = system(DecodeFirst())
    answer = iteration_chain(one, rate_per_s=0.5 * chain_capacity(one))
    law = wait_time_law(answer)
    for p in (0.0, 1.0, -0.5, math.nan):
        with pytest.raises(InputError, match="probability"):
            law.quantile(p)
        with pytest.raises(InputError, match="probability"):
            law.quantile_bounds(p)
    for t in (-1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="time_s"):
            law.cdf(t)
    with pytest.raises(InputError, match="covers"):
        law.quantile(1 - 1e-12)
    assert law.quantile_bounds(1 - 1e-12)[1] == math.inf
    with pytest.raises(InputError, match="resolution"):
        wait_time_law(answer, resolution=4)
    queue = system(Impatient())
    with pytest.raises(InputError, match="behind"):
        wait_time_law(iteration_chain(queue, rate_per_s=0.3 * chain_capacity(queue)))
    noisy = ChainSystem(
        time=DECIMAL, rule=RadRule(16), residents=2, prompt_tokens=16, outputs=Geometric(mean=3.0), duration_stages=2
    )
    with pytest.raises(InputError, match="duration_stages"):
        ttft_law(iteration_chain(noisy, rate_per_s=0.3 * chain_capacity(noisy)))

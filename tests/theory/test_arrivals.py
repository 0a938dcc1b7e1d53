"""Arrival processes: closed forms against matrix-analytic ones, and samples against both.

Intervals of samples are built from independent replications with Student's t at a false-alarm rate of 1e-6 a test.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from tileq_theory.arrivals import (
    ArrivalProcess,
    Deterministic,
    GammaArrivals,
    OnOff,
    Poisson,
    TraceArrivals,
    fit_on_off,
)
from tileq_theory.arrivals.burst_fit import index_of_dispersion
from tileq_theory.errors import InputError

FALSE_ALARM = 1e-6
rates = st.floats(0.01, 1000)


def markovian(process: OnOff) -> tuple[float, float, float]:
    """Rate, scv of stationary gaps and limiting dispersion of the Markovian arrival process (D0, D1), by matrices."""
    generator = np.array(
        [[-1 / process.mean_on_s, 1 / process.mean_on_s], [1 / process.mean_off_s, -1 / process.mean_off_s]]
    )
    d1 = np.diag([process.rate_on, process.rate_off])
    d0 = generator - d1
    pi = np.linalg.lstsq(np.vstack([generator.T, np.ones(2)]), np.array([0, 0, 1.0]), rcond=None)[0]
    one = np.ones(2)
    rate = float(pi @ d1 @ one)
    at_arrival = pi @ d1 / rate
    inverse = np.linalg.inv(-d0)
    mean, square = float(at_arrival @ inverse @ one), float(2 * at_arrival @ inverse @ inverse @ one)
    # lim Var N/E N = 1 + 2 pi D1 (1 pi - Q)^-1 D1 1/rate - 2 rate  (Neuts)
    fundamental = np.linalg.inv(np.outer(one, pi) - generator)
    dispersion = 1 + 2 * float(pi @ d1 @ fundamental @ d1 @ one) / rate - 2 * rate
    return rate, square / mean**2 - 1, dispersion


@settings(max_examples=50, deadline=None)
@given(st.floats(0.5, 50), st.floats(0.05, 20), st.floats(0.05, 20), st.floats(0, 60))
def test_on_off_closed_forms(rate_on: float, mean_on: float, mean_off: float, rate_off: float) -> None:
    process = OnOff(rate_on, mean_on, mean_off, rate_off)
    rate, scv, dispersion = markovian(process)
    assert process.rate_per_s == pytest.approx(rate, rel=1e-9)
    assert process.scv == pytest.approx(scv, rel=1e-7, abs=1e-9)
    assert process.dispersion == pytest.approx(dispersion, rel=1e-6, abs=1e-7)


PROCESSES: list[ArrivalProcess] = [
    Poisson(5.0),
    Deterministic(3.0),
    GammaArrivals(5.0, 0.4),
    GammaArrivals(2.0, 2.5),
    OnOff(20.0, 1.0, 3.0),
    OnOff(20.0, 0.5, 1.5, 4.0),
    TraceArrivals([0, 1, 1, 4, 4.5], "resample"),
    TraceArrivals([0, 1, 1, 4, 4.5], "loop"),
]


def covers(values: np.ndarray, truth: float) -> bool:
    """Whether the t interval of independent replications at the false-alarm rate holds the truth."""
    half = float(student.ppf(1 - FALSE_ALARM / 2, values.size - 1) * values.std(ddof=1) / math.sqrt(values.size))
    return abs(float(values.mean()) - truth) <= half + 1e-9 * abs(truth)


@pytest.mark.parametrize("process", PROCESSES, ids=lambda p: p.describe())
def test_samples_are_in_order_and_have_the_count(process: ArrivalProcess) -> None:
    for count in (0, 1, 2, 5000):
        times = process.sample(np.random.default_rng(2), count)
        assert times.shape == (count,)
        assert (np.diff(times) >= 0).all()
        assert count == 0 or times[0] >= 0


@pytest.mark.parametrize("process", PROCESSES, ids=lambda p: p.describe())
def test_long_run_rate(process: ArrivalProcess) -> None:
    rng = np.random.default_rng(77)
    # mean time of the first n arrivals over n/rate, from 60 replications; the start's effect is of the order 1/n
    n = 4000
    ends = np.array([process.sample(rng, n)[-1] for _ in range(60)])
    scaled = ends * process.rate_per_s / n
    if isinstance(process, TraceArrivals | Deterministic) and getattr(process, "beyond", "loop") == "loop":
        assert scaled == pytest.approx(1, abs=2 * 5 / n)
        return
    half = student.ppf(1 - FALSE_ALARM / 2, 59) * scaled.std(ddof=1) / math.sqrt(60)
    assert abs(scaled.mean() - 1) <= half + 10 * (1 + process.scv) / n


@pytest.mark.parametrize(
    "process", [p for p in PROCESSES if not isinstance(p, Deterministic)][:6], ids=lambda p: p.describe()
)
def test_gap_variability_of_samples(process: ArrivalProcess) -> None:
    rng = np.random.default_rng(78)
    scv = np.array([_scv(process.sample(rng, 20_000)[2000:]) for _ in range(40)])
    # the ratio of moments is biased by O(scv^2/n)
    truth = process.scv
    half = student.ppf(1 - FALSE_ALARM / 2, 39) * scv.std(ddof=1) / math.sqrt(40)
    assert abs(scv.mean() - truth) <= half + 20 * (1 + truth) ** 2 / 18_000


def _scv(times: np.ndarray) -> float:
    gaps = np.diff(times)
    return float(gaps.var() / gaps.mean() ** 2)


def test_counts_of_bursts_are_dispersed_as_the_window_formula_says() -> None:
    process = OnOff(20.0, 1.0, 3.0)
    rng = np.random.default_rng(9)
    window = 2.0
    found = []
    for _ in range(40):
        times = process.sample(rng, 12_000)
        counts = np.histogram(times, np.arange(20.0, times[-1], window))[0]
        found.append(counts.var(ddof=1) / counts.mean())
    truth = float(index_of_dispersion(process.dispersion, 1 + 1 / 3, np.array([window]))[0])
    values = np.array(found)
    half = student.ppf(1 - FALSE_ALARM / 2, 39) * values.std(ddof=1) / math.sqrt(40)
    assert abs(values.mean() - truth) <= half + 0.02 * truth  # 2 %: bias of a ratio from 1200 dependent windows


@settings(max_examples=50, deadline=None)
@given(rates, rates)
def test_scaling_changes_the_clock_alone(rate: float, to: float) -> None:
    for process in (Poisson(rate), Deterministic(rate), GammaArrivals(rate, 2.0), OnOff(rate, 2.0, 5.0, rate / 3)):
        scaled = process.scaled_to(to)
        assert scaled.rate_per_s == pytest.approx(to, rel=1e-12)
        assert scaled.scv == pytest.approx(process.scv, rel=1e-9)
        assert scaled.dispersion == pytest.approx(process.dispersion, rel=1e-9)
        one, other = (p.sample(np.random.default_rng(4), 30) for p in (process, scaled))
        assert other * to == pytest.approx(one * process.rate_per_s, rel=1e-9)


def test_on_off_from_dispersion() -> None:
    process = OnOff.from_dispersion(2.5, 40.0, 0.2)
    assert (process.rate_per_s, process.dispersion, process.on_share) == pytest.approx((2.5, 40.0, 0.2))


def test_fit_finds_the_bursts_it_was_drawn_from() -> None:
    """Fits of 12 drawn traces: rate and CV are the trace's own; the switching rate is found within the t interval."""
    truth = OnOff(30.0, 4.0, 12.0)
    rng = np.random.default_rng(31)
    log_r = []
    for _ in range(12):
        trace = TraceArrivals(truth.sample(rng, 60_000))
        found = fit_on_off(trace)
        assert found.rate_per_s == pytest.approx(trace.rate_per_s, rel=1e-9)
        assert found.scv == pytest.approx(trace.scv, rel=1e-9)
        log_r.append(math.log(1 / found.mean_on_s + 1 / found.mean_off_s))
    values = np.array(log_r)
    half = student.ppf(1 - FALSE_ALARM / 2, 11) * values.std(ddof=1) / math.sqrt(12)
    assert abs(values.mean() - math.log(1 / 4 + 1 / 12)) <= half + 0.05  # 5 %: bias of finite windows


def test_long_bursts_need_no_memory() -> None:
    """One burst holds 1e12 arrivals; the first thousand must not draw them all."""
    times = OnOff(1e6, 1e6, 1e-3).sample(np.random.default_rng(1), 1000)
    assert times.size == 1000


def test_trace_loops_after_one_mean_gap() -> None:
    trace = TraceArrivals([100.0, 101.0, 101.0, 104.0])
    assert trace.rate_per_s == 0.75
    assert trace.sample(np.random.default_rng(0), 9).tolist() == pytest.approx(
        [0, 1, 1, 4, 16 / 3, 19 / 3, 19 / 3, 28 / 3, 32 / 3]
    )
    assert trace.dispersion is None
    assert trace.count_dispersion(1.0) == pytest.approx(2 / 3)  # counts 1, 2, 0, 1: the last window holds its end


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Poisson(0.0), "rate"),
        (lambda: Poisson(-1.0), "rate"),
        (lambda: Poisson(math.inf), "rate"),
        (lambda: Poisson(math.nan), "rate"),
        (lambda: Deterministic(0.0), "rate"),
        (lambda: GammaArrivals(1.0, -2.0), "cv"),
        (lambda: GammaArrivals(1.0, 0.0), "cv"),
        (lambda: GammaArrivals(math.inf, 1.0), "rate"),
        (lambda: OnOff(0.0, 1.0, 1.0), "rate_on"),
        (lambda: OnOff(1.0, 0.0, 1.0), "mean_on_s"),
        (lambda: OnOff(1.0, 1.0, math.inf), "mean_off_s"),
        (lambda: OnOff(1.0, 1.0, 1.0, -1.0), "rate_off"),
        (lambda: OnOff.from_dispersion(1.0, 0.5, 0.5), "dispersion"),
        (lambda: OnOff.from_dispersion(1.0, 5.0, 1.0), "on_share"),
        (lambda: Poisson(1.0).scaled_to(0.0), "rate"),
        (lambda: TraceArrivals([1.0, 2.0]).scaled_to(-1.0), "rate"),
        (lambda: TraceArrivals([1.0]), "at least 2"),
        (lambda: TraceArrivals([]), "at least one"),
        (lambda: TraceArrivals([3.0, 3.0]), "span above 0"),
        (lambda: TraceArrivals([1.0, 3.0, 2.0]), "row 2"),
        (lambda: TraceArrivals([1.0, math.nan]), "row 1"),
        (lambda: fit_on_off(TraceArrivals(np.arange(100.0))), "CV"),
    ],
)
def test_bad_input_gets_one_line(make: object, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)

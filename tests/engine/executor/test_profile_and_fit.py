"""The executor's own profile, the fit with numpy alone, the clocks and the probe."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine import EngineConfig, Requests
from tileq_engine.executor import Probe, TokenHashBackend, serve
from tileq_engine.executor.clocks import make_clock
from tileq_engine.executor.executor import Executor
from tileq_engine.executor.light_fit import light_fit, nonnegative_least_squares
from tileq_engine.executor.profiling import (
    Design,
    composition,
    prepared,
    profile_executor,
    spread_designs,
)
from tileq_engine.executor.rehearsal import formed_batches, loop_overhead_s
from tileq_engine.registry import policy
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime


def compositions(count: int, seed: int) -> np.ndarray:
    g = np.random.default_rng(seed)
    n = g.integers(1, 300, count).astype(float)
    return np.column_stack([n, g.integers(0, 30_000, count), g.integers(0, 9000, count), g.integers(1, 64, count)])


@given(st.tuples(*(st.floats(0, 1e-3) for _ in range(4))), st.sampled_from([0.0, 40.0, 128.0]), st.integers(0, 2**20))
@settings(max_examples=30)
def test_an_exact_model_is_found_again(c: tuple[float, ...], floor: float, seed: int) -> None:
    x = compositions(40, seed)
    x[:3, 0] = [40.0, 128.0, 299.0]  # the floor's end is searched over the sizes measured
    truth = IterationTime(
        launch_s=1e-3 + c[0],
        weight_floor_s=(1e-5 + c[1]) * floor,
        token_s=1e-5 + c[1],
        pair_s=1e-3 * c[2],
        kv_token_s=1e-2 * c[3],
    )
    y = np.array([float(truth(*row)) for row in x])
    found = light_fit(x, y)
    assert np.allclose([float(found.time(*row)) for row in x], y, rtol=1e-6)


NOISY = IterationTime(launch_s=1e-3, token_s=2e-5, kv_token_s=1e-7, sequence_s=3e-5)


def noisy(count: int, seed: int, spread: float = 0.4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Batches, their mean times, and times spread around the means by a lognormal factor of mean 1."""
    g = np.random.default_rng([seed, 7])
    x = compositions(count, seed)
    mean = np.asarray(NOISY(*x.T), dtype=float)
    return x, mean, mean * np.exp(g.normal(-(spread**2) / 2, spread, count))


def test_the_fit_is_of_the_mean_however_wide_the_spread() -> None:
    """Total time of 60 fits over the true one: 1 lies in the 99.99 % interval (t of 59 degrees: 4.18).

    Least squares of fitted/measured - 1, whose residuals are divided by what was measured, is a quarter short here.
    """
    over, short = [], []
    for seed in range(60):
        x, mean, y = noisy(120, seed)
        over.append(float(np.asarray(light_fit(x, y, floor=False).time(*x.T)).sum() / mean.sum()))
        columns = np.column_stack([np.ones(len(y)), x])
        short.append(float((columns @ nonnegative_least_squares(columns / y[:, None], np.ones(len(y)))).sum()))
        short[-1] /= float(mean.sum())
    half = 4.18 * float(np.std(over, ddof=1)) / 60**0.5
    assert half < 0.025 and abs(np.mean(over) - 1.0) < half
    assert np.mean(short) < 0.8, "else this test would see nothing"


@given(st.integers(0, 2**20))
@settings(max_examples=20)
def test_the_quasi_likelihood_equations_hold(seed: int) -> None:
    x, _, y = noisy(60, seed)
    w = np.random.default_rng(seed).uniform(0.1, 3.0, 60)
    time = light_fit(x, y, floor=False, weights=w).time
    t = np.asarray(time(*x.T), dtype=float)
    columns = np.column_stack([np.ones(60), x])
    score = (w / t**2 * (y - t)) @ columns / np.abs(w / t * columns.T).sum(axis=1) * t.mean()
    found = np.array([time.launch_s, time.token_s, time.pair_s, time.kv_token_s, time.sequence_s])
    assert np.all(np.abs(score[found > 0]) < 1e-5) and np.all(score[found == 0] < 1e-5)
    assert np.average(y / t, weights=w) == pytest.approx(1.0, rel=1e-5)


def test_a_batch_that_stood_still_is_left_out_where_it_is_asked_for() -> None:
    x, _, y = noisy(200, 3, spread=0.1)
    stalled = y.copy()
    stalled[17] *= 400.0
    plain = light_fit(np.delete(x, 17, axis=0), np.delete(y, 17), floor=False)
    assert light_fit(x, stalled, floor=False, stall=20.0).time == plain.time
    assert light_fit(x, y, floor=False, stall=20.0).time == light_fit(x, y, floor=False).time
    assert float(light_fit(x, stalled, floor=False).time(*x[0])) > 1.2 * float(plain.time(*x[0]))


@given(st.integers(0, 2**20))
def test_least_squares_with_signs_is_optimal(seed: int) -> None:
    """The optimality conditions of the nonnegative problem: gradient 0 where x > 0, of the right sign where x = 0."""
    g = np.random.default_rng(seed)
    a, b = g.normal(size=(12, 5)), g.normal(size=12)
    x = nonnegative_least_squares(a, b)
    gradient = a.T @ (a @ x - b)
    assert (x >= 0).all()
    assert (np.abs(gradient[x > 0]) < 1e-8).all() and (gradient[x == 0] > -1e-8).all()


def test_too_few_points_are_refused() -> None:
    with pytest.raises(InputError, match="needs 8 or more"):
        light_fit(compositions(5, 0), np.ones(5))


@given(st.integers(8, 300), st.integers(1, 64), st.integers(4, 300), st.integers(0, 99))
@settings(max_examples=25)
def test_designs_stay_within_the_limits(tokens: int, sequences: int, context: int, seed: int) -> None:
    for design in spread_designs(tokens, sequences, context, 12, seed):
        assert 1 <= design.tokens <= tokens
        assert 1 <= design.decodes + len(design.chunks()) <= sequences
        assert all(c + h <= max(context, h + 1) for c, h in design.chunks())
        assert sum(c for c, _ in design.chunks()) == design.chunk_tokens and all(c >= 1 for c, _ in design.chunks())


def test_a_designs_composition_is_counted_as_the_scheduler_counts() -> None:
    executor = Executor(TokenHashBackend(64), 8)
    batch = prepared(executor, Design(chunk_tokens=10, pieces=2, history_tokens=3, decodes=2, context_tokens=8))
    # chunks of 5 after 3: 2 * 5 (3 + 3); decodes after 4 and 12 cached tokens read 5 and 13
    assert composition(batch) == (12, 60.0, 18, 4)


def test_formed_batches_are_those_of_a_saturated_server() -> None:
    asked = Requests.from_arrays(
        arrival_ps=np.zeros(60, dtype=np.int64), prompt_tokens=np.full(60, 20), output_tokens=np.full(60, 12)
    )
    config = EngineConfig(token_budget=16, max_num_seqs=8, kv_tokens=1024)
    model = IterationTime(launch_s=1e-3, token_s=1e-4)
    found = formed_batches([policy("sarathi"), policy("vllm_v1")], asked, config, model, 10)
    assert len(found) == 10
    for one in found:
        assert one.tokens == 16  # full batches: work is always waiting
        assert one.decodes == len(one.contexts()) <= 8 and all(20 <= c < 32 for c in one.contexts())
        assert all(c + h <= 20 for c, h in one.chunks())
    executor = Executor(TokenHashBackend(64), 16)
    assert composition(prepared(executor, found[0]))[0] == 16


def test_a_profile_finds_what_a_batch_costs() -> None:
    """A double that takes a known time: measured on the wall clock it takes at least that, and not twice as long."""

    class Timed(TokenHashBackend):
        def step(self, batch: Any, rows: Any) -> Any:
            until = time.thread_time() + 2e-5 * batch.token_ids.size
            found = super().step(batch, rows)
            while time.thread_time() < until:
                pass
            return found

        def _read(self, batch: Any, member: int) -> Any:
            return np.zeros(1, dtype=np.int64)  # the contexts of a profile are not filled

    probe = Probe(lambda: sum(range(200)))
    points = profile_executor(
        Timed(256), probe, most_tokens=64, most_sequences=8, longest_context=40, budget_s=2.0, count=9
    )
    assert len(points) == 9 and all(p.repeats >= 5 and p.raw_seconds >= 2e-5 * p.tokens for p in points)
    assert loop_overhead_s(TokenHashBackend(256), EngineConfig(max_num_seqs=8), 8, 20) > 0


def test_the_probe_follows_the_machine_slowly() -> None:
    ticks = iter([0, 100] * 3 + [0, 100] * 5 + [0, 10_000] + [0, 200] * 80)
    probe = Probe(lambda: None, lambda: next(ticks))
    assert probe.set_reference(3) == 100.0 and probe.slowness == 1.0
    for _ in range(5):
        probe.once()
    probe.once()  # a hundred times slower, once: a neighbour's burst
    assert probe.slowness == pytest.approx(1.1)
    for _ in range(80):
        probe.once()
    assert probe.slowness == pytest.approx(2.0, rel=1e-3)


def test_the_steady_clock_divides_by_slowness() -> None:
    probe = Probe(lambda: None)
    probe.reference_ns, probe.smooth_ns = 100.0, 200.0
    now = iter([0, 5_000])
    clock = make_clock("steady", probe)
    clock._now = lambda: next(now)
    clock._mark = next(now)
    assert clock.lap({}) == 2_500_000  # 5 us of CPU time at half speed: 2.5 us


def test_what_serves_the_record_is_not_counted() -> None:
    """Idle gaps are skipped by the busy clock, and so is what `until` takes."""
    asked = Requests.from_arrays(arrival_s=[0.0, 50.0], prompt_tokens=[4, 4], output_tokens=[3, 3])

    def slow(session: Any) -> bool:
        time.sleep(0.02)
        return False

    begun = time.perf_counter()
    served = serve(asked, policy("sarathi"), TokenHashBackend(), clock="busy", live=False, until=slow)
    assert time.perf_counter() - begun < 40  # fifty seconds of nobody are not waited for
    assert served.raw.admit_ps[1] == 50 * 10**12
    assert served.log.seconds.max() < 0.02

"""Ratio, tile plan and stability region."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from capacity_instances import fixed, positive, times
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tileq_theory import Demand, InputError, IterationTime, Workload, parse_class
from tileq_theory.capacity import (
    LevelUse,
    Limits,
    best_rationals,
    capacity,
    sarathi_capacity,
    stability_region,
    tile_plan,
    tile_ratio,
)

SOME = settings(max_examples=25, deadline=None)
QUICK = settings(deadline=None)  # the machine's speed is not what is tested


class Fixed:
    """A workload of two fixed classes in even shares."""

    def __init__(self, *lengths: tuple[int, int]) -> None:
        self.lengths = lengths

    def demand(self, *, chunk_tokens: int, convention: str = "engine", counting: str = "whole") -> Demand:
        classes = [fixed(p, o, chunk=chunk_tokens, convention=convention, counting=counting) for p, o in self.lengths]
        return Demand.mix(classes, [1.0] * len(classes))


GPU = IterationTime(
    launch_s=1e-3,
    weight_floor_s=4.8e-3,
    tile_s=2.07e-3,
    tile_tokens=128,
    token_s=2e-7,
    pair_s=5e-10,
    kv_token_s=4e-8,
    sequence_s=1e-6,
)


@QUICK
@given(st.integers(1, 400), st.integers(1, 400))
def test_best_rationals_reach_a_rational_exactly_and_only_get_closer(h: int, k: int) -> None:
    value = Fraction(h, k)
    found = list(best_rationals(float(value)))
    errors = [abs(f - Fraction(float(value))) for f in found]
    assert all(b < a for a, b in pairwise(errors))
    assert value in found


@QUICK
@given(positive(1.0, 500))
def test_best_rationals_are_best(value: float) -> None:
    """No fraction with a smaller denominator is closer (brute force over denominators up to 40)."""
    for fraction in best_rationals(value):
        if fraction.denominator > 40:
            break
        error = abs(fraction - Fraction(value))
        for k in range(1, fraction.denominator):
            assert abs(Fraction(round(value * k), k) - Fraction(value)) > error


def use(tokens: int, prefill: float, decode: float, x: float, seconds: float) -> LevelUse:
    return LevelUse(tokens, "mixed", x, prefill, decode, 0.0, 0.0, seconds)


def test_ratio_of_exclusive_levels_and_its_loss() -> None:
    levels = [use(128, 128, 0, 31.135, 0.005), use(128, 0, 128, 10.0, 0.005)]
    ratio = tile_ratio(levels, most_loss=0.01)
    assert ratio.pair == (3, 1)
    # 3 : 1 of the same 41.135 iterations: 30.85 prefill against 31.135
    assert ratio.loss == pytest.approx(1 - 0.75 * 41.135 / 31.135, rel=1e-12)
    assert tile_ratio(levels, most_loss=1e-6).loss <= 1e-6


def test_ratio_below_one_and_one_kind_only() -> None:
    assert tile_ratio([use(64, 64, 0, 1.0, 0.01), use(64, 0, 64, 7.0, 0.01)], most_loss=0.0).pair == (1, 7)
    assert tile_ratio([use(64, 64, 0, 1.0, 0.01)]).pair == (1, 0)


@SOME
@given(st.data())
def test_plan_is_within_its_own_promises(data: st.DataObject) -> None:
    time = data.draw(times())
    lengths = [(data.draw(st.integers(1, 300)), data.draw(st.integers(2, 300))) for _ in range(2)]
    limits = Limits(max_batch_tokens=data.draw(st.integers(8, 600)), kv_tokens=data.draw(positive(700, 20000)))
    plan = tile_plan(time, Fixed(*lengths), limits, rate_per_s=1.0)
    assert plan.budget_rate_per_s <= plan.capacity.rate_per_s * (1 + 1e-8)
    assert plan.budget_rate_per_s >= plan.curve_rate_per_s.max() * 0.99 * (1 - 1e-9)
    smaller = plan.curve_tokens < plan.token_budget
    assert (plan.curve_rate_per_s[smaller] < plan.curve_rate_per_s.max() * 0.99).all()
    assert plan.prefill_tokens + plan.decode_tokens <= plan.token_budget * (1 + 1e-9)
    assert plan.residents <= plan.max_num_seqs + 1e-6 or plan.max_num_seqs == plan.token_budget
    assert plan.ratio.loss <= 0.01 + 1e-12
    assert plan.utilisation == pytest.approx(1.0 / plan.capacity.rate_per_s)


def test_plan_budget_is_the_sarathi_program_at_its_own_chunk() -> None:
    limits = Limits(kv_tokens=60_000, tbt_s=0.03)
    work = Fixed((1500, 200), (200, 100))
    plan = tile_plan(GPU, work, limits)
    chunk = round(plan.token_budget - plan.decode_tokens)
    program = sarathi_capacity(GPU, work.demand(chunk_tokens=chunk), limits, token_budget=plan.token_budget)
    assert program.rate_per_s == pytest.approx(plan.budget_rate_per_s, rel=1e-4)  # the chunk is corrected once


def test_plan_replicas_headroom_and_overload_warning() -> None:
    work = Fixed((100, 100))
    time = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    one = tile_plan(time, work, Limits(max_batch_tokens=512)).budget_rate_per_s
    for wanted in (1, 2, 5):
        plan = tile_plan(time, work, Limits(max_batch_tokens=512), rate_per_s=wanted * one, max_utilisation=1.0)
        assert plan.replicas == wanted
    assert any("no policy is stable" in text for text in plan.warnings)
    assert plan.headroom_per_s is not None
    assert plan.headroom_per_s < 0


def test_plan_ttft_limit_moves_the_budget_up_or_is_refused() -> None:
    work = Fixed((4000, 50))
    free = tile_plan(GPU, work, Limits())
    tight = tile_plan(GPU, work, Limits(), ttft_s=free.ttft_floor_s * 0.993)
    assert tight.token_budget > free.token_budget
    assert tight.ttft_floor_s <= free.ttft_floor_s * 0.993
    with pytest.raises(InputError, match="TTFT limit"):
        tile_plan(GPU, work, Limits(), ttft_s=1e-3)


def test_longest_iteration_is_told_when_it_breaks_the_tbt_limit() -> None:
    time = GPU.with_(pair_s=5e-8)
    plan = tile_plan(time, Fixed((8000, 20), (100, 20)), Limits(tbt_s=0.1))
    assert plan.longest_iteration_s > 0.1
    assert any("longest prompt" in text for text in plan.warnings)


def test_contexts_too_long_for_the_tbt_limit_are_told() -> None:
    """A decode of c tokens alone takes tau(1) + k c + s: 5.8 ms + 40 ns c + 1 us against 6.5 ms, so c up to 17 475."""
    plan = tile_plan(GPU, Fixed((100, 50), (30_000, 50)), Limits(tbt_s=6.5e-3))
    assert any("more than 17,475 tokens of context" in text for text in plan.warnings)
    short = tile_plan(GPU, Fixed((100, 50), (17_000, 50)), Limits(tbt_s=6.5e-3))
    assert not any("tokens of context" in text for text in short.warnings)


@SOME
@given(st.data(), st.integers(2, 3))
def test_region_agrees_with_the_program_on_random_rays(data: st.DataObject, size: int) -> None:
    time = data.draw(times())
    classes = [fixed(data.draw(st.integers(1, 80)), data.draw(st.integers(1, 80)), chunk=32) for _ in range(size)]
    limits = Limits(
        max_batch_tokens=data.draw(st.integers(8, 64)),
        max_num_seqs=data.draw(st.integers(2, 40)),
        kv_tokens=data.draw(positive(170, 3000)),
    )
    region = stability_region(time, classes, limits)
    assert region.complete
    ray = np.array([data.draw(positive(0.01, 100)) for _ in classes])
    ray /= ray.sum()
    rate = capacity(time, Demand.mix(classes, ray), limits).rate_per_s
    assert region.headroom(ray) == pytest.approx(rate, rel=1e-6)
    assert region.contains(ray * rate * (1 - 1e-5))
    assert not region.contains(ray * rate * (1 + 1e-5))
    # every vertex is on the boundary, and every facet holds at every vertex
    loads = region.vertices @ region.prices().T
    assert loads.max(axis=1) == pytest.approx(1.0, rel=1e-6)
    assert (loads <= 1 + 1e-6).all()


def test_region_of_dai_is_one_simplex() -> None:
    time = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    region = stability_region(time, [fixed(100, 100), fixed(300, 20), fixed(20, 500)], Limits(max_batch_tokens=512))
    assert len(region.facets) == 1
    expected = 512 / 0.15316 / np.array([200, 320, 520])
    assert np.diag(region.vertices) == pytest.approx(expected, rel=1e-9)


def test_region_with_two_binding_limits_has_the_corner_where_they_meet() -> None:
    """Memory (Nie) and batch tokens (Dai) with a constant time: two planes written down by hand."""
    time = IterationTime.constant(0.02)
    chat, code = fixed(10, 200), fixed(600, 5)
    region = stability_region(time, [chat, code], Limits(max_batch_tokens=64, kv_tokens=2000))
    batch = np.array([210, 605]) / 64 * 0.02
    memory = np.array([chat.memory_iterations, code.memory_iterations]) / 2000 * 0.02
    assert len(region.facets) == 2
    steepest_first = region.prices()[np.argsort(-region.prices()[:, 0])]
    assert steepest_first == pytest.approx(np.array([memory, batch]), rel=1e-7)
    corner = np.linalg.solve(np.array([batch, memory]), np.ones(2))
    assert np.abs(region.vertices - corner).sum(axis=1).min() == pytest.approx(0, abs=1e-6 * corner.sum())


def test_distance_inside_and_outside() -> None:
    time = IterationTime.dai(launch_s=0.0, tile_s=0.01, tile_tokens=10)
    region = stability_region(time, [fixed(5, 5), fixed(5, 5)], Limits(max_batch_tokens=10))
    # sum of rates <= 100: a 45-degree line
    assert region.distance([0, 0]) == pytest.approx(100 / math.sqrt(2), rel=1e-9)
    assert region.distance([80, 80]) == pytest.approx(-60 / math.sqrt(2), rel=1e-6)
    assert region.distance([50, 50]) == pytest.approx(0, abs=1e-7)


def test_many_classes_are_decided_by_the_program() -> None:
    time = IterationTime.dai(launch_s=0.001, tile_s=0.01, tile_tokens=16)
    classes = [fixed(10 * i, 7 * i) for i in range(1, 15)]
    region = stability_region(time, classes, Limits(max_batch_tokens=64))
    assert not region.complete
    tokens = np.array([17.0 * i for i in range(1, 15)])
    rates = np.linspace(1, 2, 14)
    assert region.load(rates) == pytest.approx(rates @ tokens * 0.041 / 64, rel=1e-6)
    # one facet, sum of tokens: the plane's distance, inside and outside
    plane = 64 / 0.041 - tokens @ rates
    assert region.distance(rates) == pytest.approx(plane / np.linalg.norm(tokens), rel=1e-6)
    assert region.distance(rates * 50) == pytest.approx(-_outside(rates * 50, tokens, 64 / 0.041), rel=1e-5)


def _outside(point: np.ndarray, tokens: np.ndarray, most: float) -> float:
    """Distance to {x >= 0, tokens x <= most} by bisection on the multiplier: x = (point - nu tokens)^+."""
    low, high = 0.0, float((point / tokens).max())
    for _ in range(200):
        nu = (low + high) / 2
        low, high = (nu, high) if tokens @ np.maximum(point - nu * tokens, 0) > most else (low, nu)
    return float(np.linalg.norm(point - np.maximum(point - high * tokens, 0)))


def test_distance_without_the_list_of_facets_is_that_with_it() -> None:
    """The facets found near a point are enough: a region of few classes, once complete and once told it is not."""
    classes = [fixed(10, 200), fixed(600, 5), fixed(90, 90)]
    limits = Limits(max_batch_tokens=64, kv_tokens=2000, max_num_seqs=9)
    region = stability_region(IterationTime.constant(0.02), classes, limits)
    sketch = replace(region, complete=False, facets=region.facets[:1])
    assert len(region.facets) > 1
    rng = np.random.default_rng(0)
    for _ in range(12):
        ray = rng.dirichlet([1, 1, 1])
        for load in (0.3, 0.9, 1.7):
            point = ray * region.headroom(ray) * load
            assert sketch.distance(point) == pytest.approx(region.distance(point), rel=1e-5)


@pytest.mark.parametrize("bad", [[1.0], [1.0, -1.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_region_refuses_bad_points(bad: list[float]) -> None:
    region = stability_region(IterationTime.constant(0.1), [fixed(5, 5), fixed(9, 2)], Limits(max_batch_tokens=32))
    with pytest.raises(InputError, match="expected 2 finite numbers"):
        region.load(bad)


@SOME
@given(st.data())
def test_utilisation_needs_a_positive_share(data: st.DataObject) -> None:
    bad = data.draw(st.floats(max_value=0.0, allow_nan=False))
    assume(bad <= 0)
    with pytest.raises(InputError):
        tile_plan(GPU, Fixed((10, 10)), Limits(), max_utilisation=bad)


@pytest.mark.parametrize(("prompt", "output"), [(400_000, 2), (20_000, 2), (1, 300_000)])
def test_lopsided_requests_have_a_ratio(prompt: int, output: int) -> None:
    """One decode to 400,000 prefill tokens: the ratio has no small pair, but it has a pair."""
    plan = tile_plan(GPU, Fixed((prompt, output)), Limits())
    assert plan.ratio.exact == pytest.approx(prompt / (output - 1), rel=1e-6)
    assert plan.ratio.loss <= 0.01


@pytest.mark.parametrize("most", [2**13, 2**16, 2**17, 10**6, 10**9])
def test_budget_does_not_depend_on_how_large_a_batch_may_be(most: int) -> None:
    time = IterationTime(launch_s=1e-4, weight_floor_s=6.4e-3, tile_s=2.6e-3, tile_tokens=128, token_s=2e-6)
    small = tile_plan(time, Fixed((1000, 200)), Limits(max_batch_tokens=2**13))
    plan = tile_plan(time, Fixed((1000, 200)), Limits(max_batch_tokens=most))
    rates = [sarathi(time, n) for n in range(128, 2**13 + 1, 128)]
    best = max(*rates, plan.curve_rate_per_s.max())
    assert plan.token_budget == 128 * (1 + next(i for i, rate in enumerate(rates) if rate >= 0.99 * best))
    assert abs(plan.token_budget - small.token_budget) <= 128  # the best itself grows a little
    assert plan.budget_rate_per_s >= 0.99 * plan.curve_rate_per_s.max()


def sarathi(time: IterationTime, budget: int) -> float:
    """lambda(n) without memory or slots: 1/(tau(n) (P + D)/n), 1000 prompt and 199 decode tokens."""
    return float(1 / (time.tau_s(budget) * 1199 / budget))


def test_a_decode_that_outlasts_the_tbt_limit_alone_is_refused() -> None:
    """Half a decode an iteration would meet the limit on paper: no batch holds half a decode."""
    time = IterationTime(launch_s=5e-3, tile_s=1e-3, tile_tokens=128, kv_token_s=1e-7)
    long = fixed(100_000, 10)  # one decode reads 100,001 tokens in 10 ms, 16 ms with its tile
    with pytest.raises(InputError, match=r"one decode alone takes 0\.0160001 s"):
        tile_plan(time, Fixed((100_000, 10)), Limits(tbt_s=0.016))
    assert tile_plan(time, Fixed((100_000, 10)), Limits(tbt_s=0.0161)).budget_rate_per_s > 0
    assert tile_plan(time, Fixed((100_000, 1)), Limits(tbt_s=0.0061)).budget_rate_per_s > 0  # nothing to decode
    with pytest.raises(InputError, match="class b: the TBT limit"):
        stability_region(time, [fixed(10, 10), long], Limits(tbt_s=0.01), names=["a", "b"])
    mix = Workload([parse_class("10:10"), parse_class("100000:10")])
    with pytest.raises(InputError, match="class 100000:10: the TBT limit"):
        tile_plan(time, mix, Limits(tbt_s=0.01))


@pytest.mark.parametrize("bad", [{"max_batch_tokens": 10**21}, {"nodes": 10**300}])
def test_limits_that_arithmetic_cannot_carry_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(InputError, match="expected at most"):
        Limits(**bad)


def test_a_class_share_beyond_summing_is_refused() -> None:
    with pytest.raises(InputError, match="share of class"):
        parse_class("10:10@1e308")


def test_region_refuses_rates_beyond_projection() -> None:
    region = stability_region(IterationTime.constant(0.1), [fixed(5, 5), fixed(9, 2)], Limits(max_batch_tokens=32))
    assert region.distance([1e15, 1e15]) < 0
    with pytest.raises(InputError, match="at most 1e\\+15"):
        region.distance([1e308, 1e308])

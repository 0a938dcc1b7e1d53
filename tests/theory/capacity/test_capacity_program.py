"""Certificates and properties of the capacity program over random instances."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from capacity_instances import demands, fixed, independent_rate, limits, positive, times
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory import Demand, InputError, IterationTime
from tileq_theory.capacity import (
    Level,
    Limits,
    capacity,
    exclusive_capacity,
    rad_capacity,
    sarathi_capacity,
    single_level_rate,
)

MANY = settings(max_examples=40, deadline=None)
SOME = settings(max_examples=20, deadline=None)


@MANY
@given(st.data())
def test_column_generation_equals_the_program_over_every_batch_size(data: st.DataObject) -> None:
    """Only corners and priced batch sizes are in the program, yet no whole number from 1 to n_max is missing."""
    time, demand = data.draw(times()), data.draw(demands())
    limit = data.draw(limits(time))
    every = independent_rate(time, demand, limit, range(1, limit.max_batch_tokens + 1))
    if every <= 0:
        return
    answer = capacity(time, demand, limit)
    assert answer.rate_per_s == pytest.approx(every, rel=1e-6)
    assert answer.levels_proof is not None
    assert answer.levels_proof <= 1e-8


@MANY
@given(st.data())
def test_kkt_conditions_hold_and_prices_add_up(data: st.DataObject) -> None:
    time, demand = data.draw(times()), data.draw(demands())
    answer = capacity(time, demand, data.draw(limits(time)))
    assert answer.kkt().ok(1e-8)
    assert answer.price_of(demand) * answer.rate_per_s == pytest.approx(1.0, rel=1e-7)
    # a faster clock speeds everything up: the elasticities of all times and of the TBT limit add up to -1
    assert sum(v for name, v in answer.elasticities.items() if name.endswith("_s")) == pytest.approx(-1.0, rel=1e-6)
    assert all(0 <= share <= 1 + 1e-9 for share in answer.usage.values())


def test_kkt_check_sees_a_wrong_answer() -> None:
    answer = capacity(IterationTime.constant(0.01), fixed(50, 50), Limits(max_batch_tokens=64))
    solution = answer.solution
    wrong = replace(answer, solution=replace(solution, rate=solution.rate * 1.01))
    assert not wrong.kkt().ok()
    wrong = replace(answer, solution=replace(solution, duals={**solution.duals, "time": solution.duals["time"] * 0.9}))
    assert not wrong.kkt().ok()


@MANY
@given(st.data())
def test_relaxing_a_limit_never_lowers_the_rate(data: st.DataObject) -> None:
    time, demand = data.draw(times()), data.draw(demands())
    limit = data.draw(limits(time))
    more = data.draw(positive(1.01, 3))
    relaxed = [limit.with_(max_batch_tokens=int(np.ceil(limit.max_batch_tokens * more)))]
    if limit.kv_tokens is not None:
        relaxed += [limit.with_(kv_tokens=limit.kv_tokens * more), limit.with_(kv_tokens=None)]
    if limit.max_num_seqs is not None:
        relaxed += [limit.with_(max_num_seqs=int(np.ceil(limit.max_num_seqs * more))), limit.with_(max_num_seqs=None)]
    if limit.tbt_s is not None:
        relaxed += [limit.with_(tbt_s=limit.tbt_s * more), limit.with_(tbt_s=None)]
    base = capacity(time, demand, limit).rate_per_s
    for wider in relaxed:
        assert capacity(time, demand, wider).rate_per_s >= base * (1 - 1e-8)
    assert capacity(time, demand, limit.with_(couple_reads=False)).rate_per_s >= base * (1 - 1e-8)


@SOME
@given(st.data(), st.sampled_from([1e-6, 1e-3, 7.3, 1e3, 1e6]))
def test_rate_scales_exactly_with_the_unit_of_time(data: st.DataObject, factor: float) -> None:
    time, demand = data.draw(times()), data.draw(demands())
    limit = data.draw(limits(time))
    scaled = limit if limit.tbt_s is None else limit.with_(tbt_s=limit.tbt_s * factor)
    rate = capacity(time, demand, limit).rate_per_s
    assert capacity(time.scaled(factor), demand, scaled).rate_per_s * factor == pytest.approx(rate, rel=1e-9)


@SOME
@given(st.data())
def test_class_order_does_not_matter_to_the_bit(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=2, max_size=4))
    shares = [data.draw(positive(0.01, 100)) for _ in lengths]
    order = data.draw(st.permutations(range(len(lengths))))
    time = data.draw(times())
    limit = Limits(max_batch_tokens=64, kv_tokens=500)
    classes = [fixed(p, o, chunk=16) for p, o in lengths]
    one = capacity(time, Demand.mix(classes, shares), limit)
    two = capacity(time, Demand.mix([classes[i] for i in order], [shares[i] for i in order]), limit)
    assert one.rate_per_s == two.rate_per_s


@SOME
@given(st.data(), st.integers(2, 5))
def test_longer_requests_in_larger_batches(data: st.DataObject, factor: int) -> None:
    """All lengths times f, tiles, batches and slots times f, KV times f^2, times per token 1/f: the same rate."""
    time, demand = data.draw(times()), data.draw(demands())
    limit = data.draw(limits(time)).with_(max_batch_tokens=32)
    f = float(factor)
    longer = Demand(*(demand.vector() * [f, f, f**2, f**2, f**2, f]), *(f * v for v in _extremes(demand)))
    wider = limit.with_(
        max_batch_tokens=32 * factor,
        max_num_seqs=None if limit.max_num_seqs is None else limit.max_num_seqs * factor,
        kv_tokens=None if limit.kv_tokens is None else limit.kv_tokens * f**2,
    )
    slower = time.with_(
        tile_tokens=time.tile_tokens * factor,
        token_s=time.token_s / f,
        pair_s=time.pair_s / f**2,
        kv_token_s=time.kv_token_s / f**2,
        sequence_s=time.sequence_s / f,
    )
    levels = sorted({Level(n) for n in range(1, 33)})
    scaled = [Level(level.tokens * factor) for level in levels]
    base = capacity(time, demand, limit, levels=levels).rate_per_s
    assert capacity(slower, longer, wider, levels=scaled).rate_per_s == pytest.approx(base, rel=1e-7)


def _extremes(demand: Demand) -> list[float]:
    return [demand.longest_prompt_tokens, demand.longest_context_tokens, demand.shortest_context_tokens]


@SOME
@given(st.integers(1, 200), st.integers(1, 200), st.integers(2, 6))
def test_lengths_times_f_divide_the_rate_where_only_tokens_cost(prompt: int, output: int, factor: int) -> None:
    time = IterationTime.dai(launch_s=0.003, tile_s=0.01, tile_tokens=16)
    limit = Limits(max_batch_tokens=128)
    one = capacity(time, fixed(prompt, output), limit).rate_per_s
    many = capacity(time, fixed(prompt * factor, output * factor), limit).rate_per_s
    assert many * factor == pytest.approx(one, rel=1e-9)


@MANY
@given(st.data())
def test_single_level_is_the_closed_form(data: st.DataObject) -> None:
    time, demand = data.draw(times()), data.draw(demands())
    limit = data.draw(limits(time))
    n = data.draw(st.integers(1, limit.max_batch_tokens))
    closed = float(single_level_rate(time, demand, limit, n)[0])
    if closed <= 0:
        return
    assert sarathi_capacity(time, demand, limit, token_budget=n).rate_per_s == pytest.approx(closed, rel=1e-6)


@SOME
@given(st.data())
def test_policies_stay_below_the_bound(data: st.DataObject) -> None:
    time, demand = data.draw(times()), data.draw(demands())
    limit = data.draw(limits(time)).with_(tbt_s=None)
    bound = capacity(time, demand, limit).rate_per_s
    n = data.draw(st.integers(1, limit.max_batch_tokens))
    exclusive = exclusive_capacity(time, demand, limit)
    assert all(min(level.prefill_tokens, level.decode_tokens) <= 1e-9 for level in exclusive.levels)
    rad = rad_capacity(time, demand, limit, prefill_tile_tokens=n, decode_tile_tokens=n)
    assert rad.rate_per_s <= exclusive.rate_per_s * (1 + 1e-8) <= bound * (1 + 2e-8)


@SOME
@given(st.data())
def test_elasticities_are_the_derivatives(data: st.DataObject) -> None:
    """Against one-sided differences: an LP's value is concave in its limits, so the dual lies between the two."""
    time, demand = data.draw(times()), data.draw(demands())
    limit = Limits(max_batch_tokens=32, kv_tokens=data.draw(positive(130, 3000)))
    answer = capacity(time, demand, limit)
    h = 1e-4

    def rate(factor: float) -> float:
        return capacity(time, demand, limit.with_(kv_tokens=limit.kv_tokens * factor)).rate_per_s

    right = (rate(1 + h) / answer.rate_per_s - 1) / h
    left = (1 - rate(1 - h) / answer.rate_per_s) / h
    assert right - 1e-3 <= answer.elasticities["kv_tokens"] <= left + 1e-3


def test_rational_instance_is_exact() -> None:
    """One level, everything rational: lambda = R / (tau x + k G + e A + s u) in fractions."""
    time = IterationTime(launch_s=0.5, tile_s=0.25, tile_tokens=4, kv_token_s=0.125, pair_s=0.0625, sequence_s=0.03125)
    demand = fixed(6, 3, chunk=4)
    x = Fraction(9, 8)
    seconds = x * (Fraction(1, 2) + Fraction(1, 4) * 2) + Fraction(7 + 8 + 9, 8) + Fraction(21, 16) + Fraction(5, 32)
    rate = float(single_level_rate(time, demand, Limits(max_batch_tokens=8), 8)[0])
    assert rate == float(1 / seconds)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tbt_s": 0.001}, "shortest possible iteration"),
        ({"kv_tokens": 50}, "longest request needs"),
    ],
)
def test_requests_that_can_never_be_served(change: dict[str, float], words: str) -> None:
    time = IterationTime(launch_s=0.01, token_s=1e-4)
    with pytest.raises(InputError, match=words):
        capacity(time, fixed(100, 100), Limits().with_(**change))


@pytest.mark.parametrize("bad", [0, -1])
@pytest.mark.parametrize("name", ["max_batch_tokens", "max_num_seqs", "nodes"])
def test_limits_refuse_nonsense(name: str, bad: int) -> None:
    with pytest.raises(InputError, match=name):
        Limits(**{name: bad})


def test_nothing_limits_the_rate() -> None:
    with pytest.raises(InputError, match="nothing limits"):
        capacity(IterationTime(), fixed(10, 10), Limits())

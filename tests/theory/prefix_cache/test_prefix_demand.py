"""What a cache leaves to the capacity program: exact demands, and the program's answers with and without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.capacity import Limits, capacity, tile_plan
from tileq_theory.capacity.single import single_level_rate
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Fixed, Independent, Pairs, Uniform
from tileq_theory.prefix_cache import CachedLengths, share_cached

TIME = IterationTime(launch_s=1e-3, weight_floor_s=4e-3, tile_s=2e-3, tile_tokens=64, pair_s=1e-9, kv_token_s=2e-8)


def counted(prompt: int, cached: int, shared: int, steps: int, chunk: int) -> list[float]:
    """P, A, g, u of one request, iteration by iteration."""
    pairs = held = slots = done = 0.0
    at = cached
    while at < prompt:
        size = min(chunk, prompt - at)
        pairs += sum(at + j for j in range(1, size + 1))
        at += size
        done += size
        held += at - shared
        slots += 1
    for step in range(1, steps + 1):
        held += prompt + step - shared
        slots += 1
    return [done, pairs, held, slots]


ROWS = st.lists(
    st.tuples(st.integers(1, 90), st.integers(1, 12), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6
)


@settings(max_examples=60)
@given(rows=ROWS, chunk=st.integers(1, 70), paper=st.booleans())
def test_the_demand_is_what_iterations_add_up_to(
    rows: list[tuple[int, int, float, float]], chunk: int, paper: bool
) -> None:
    prompts = np.array([p for p, _, _, _ in rows])
    outputs = np.array([o for _, o, _, _ in rows])
    cached = np.array([min(int(h * p), p - 1) for p, _, h, _ in rows])
    shared = np.array([int(s * h) for h, (_, _, _, s) in zip(cached, rows, strict=True)])
    law = CachedLengths(Pairs(prompts, outputs), prompts, cached, shared, output_tokens=outputs)
    convention = "paper" if paper else "engine"
    steps = outputs - (0 if paper else 1)
    each = np.array([counted(*map(int, row), chunk) for row in zip(prompts, cached, shared, steps, strict=True)])
    demand = law.demand(chunk_tokens=chunk, convention=convention)
    found = [demand.prefill_tokens, demand.attention_pairs, demand.memory_iterations, demand.slot_iterations]
    assert found == pytest.approx(each.mean(axis=0).tolist(), rel=1e-9, abs=1e-9)
    assert demand.prompt_tokens == pytest.approx(prompts.mean())
    assert demand.kv_shared_tokens == pytest.approx(float((shared * steps).mean()))
    by_chunk = law.demand_by_chunk(np.array([chunk]), convention=convention)
    assert by_chunk.memory_iterations[0] == pytest.approx(demand.memory_iterations)
    assert by_chunk.slot_iterations[0] == pytest.approx(demand.slot_iterations)


@settings(max_examples=30)
@given(chunk=st.integers(1, 70), counting=st.sampled_from(["whole", "fluid", "least"]), paper=st.booleans())
def test_without_hits_nothing_changes(chunk: int, counting: str, paper: bool) -> None:
    law = Independent(Uniform(5, 60), Uniform(1, 20))
    setting = {"chunk_tokens": chunk, "counting": counting, "convention": "paper" if paper else "engine"}
    plain, cached = law.demand(**setting), share_cached(law, 0.0).demand(**setting)
    assert cached.vector() == pytest.approx(plain.vector(), rel=1e-12)
    assert cached.cached_tokens == cached.kv_shared_tokens == 0


def test_a_share_of_every_prompt() -> None:
    law = share_cached(Independent(Fixed(1000), Fixed(10)), 1.0)
    demand = law.demand(chunk_tokens=512)
    assert (demand.prefill_tokens, demand.slot_iterations) == (1.0, 10.0), "the last token of a prompt is computed"
    # a heavy tail: 3/8 of integer prompts rounds down by 7/16 tokens on average
    half = share_cached(Independent(Uniform(800, 1599), Fixed(2)), 0.375).demand(chunk_tokens=512)
    assert half.cached_tokens == pytest.approx(0.375 * 1199.5 - 7 / 16, abs=1e-9)


def test_the_share_of_tokens_found() -> None:
    """Of prompts of 100 and 300 tokens, weighted 3:1, 60 and 40 are found: 55 of 150."""
    law = CachedLengths(Pairs([100, 300], [10, 10], [3, 1]), [100, 300], [60, 40], weights=[3, 1])
    assert law.hit_share == pytest.approx(55 / 150)
    assert "36.7% of prompt tokens cached" in law.describe()


def test_cases_that_do_not_fit_are_named() -> None:
    whole = Independent(Fixed(100), Fixed(10))
    with pytest.raises(InputError, match="case 1 has 100 tokens cached"):
        CachedLengths(whole, [100, 100], [50, 100])
    with pytest.raises(InputError, match="60 of them shared"):
        CachedLengths(whole, [100], [50], [60])
    with pytest.raises(InputError, match="differ in number"):
        CachedLengths(whole, [100, 100], [50])
    with pytest.raises(InputError, match=r"share is 1\.5"):
        share_cached(whole, 1.5)
    with pytest.raises(InputError, match="kv_shared_tokens"):
        Demand(1, 1, 2, 1, 3, 2, kv_shared_tokens=3)


@settings(max_examples=25)
@given(
    hits=st.floats(0, 0.95), sharing=st.floats(0, 1), memory=st.integers(3000, 60_000),
    slots=st.integers(4, 200), tbt=st.sampled_from([None, 0.02, 0.1]),
)  # fmt: skip
def test_a_cache_never_lowers_the_capacity_and_the_conditions_hold(
    hits: float, sharing: float, memory: int, slots: int, tbt: float | None
) -> None:
    whole = Independent(Uniform(100, 900), Uniform(10, 200))
    limits = Limits(max_batch_tokens=512, max_num_seqs=slots, kv_tokens=memory, tbt_s=tbt)
    prompts = np.arange(100.0, 901.0)
    cached = np.minimum(np.floor(hits * prompts), prompts - 1)
    rates = []
    for law in (whole, CachedLengths(whole, prompts, cached), CachedLengths(whole, prompts, cached, sharing * cached)):
        answer = capacity(TIME, law.demand(chunk_tokens=512, counting="least"), limits)
        assert answer.kkt().ok()
        rates.append(answer.rate_per_s)
    assert rates[0] <= rates[1] * (1 + 1e-9) and rates[1] <= rates[2] * (1 + 1e-9)


def test_shared_memory_counts_once_where_memory_binds() -> None:
    """Decodes of one context c read c each; all but 10 tokens of it shared, M = 100 holds ten of them at once."""
    time = IterationTime.constant(0.01)
    alone = Demand(1.0, 99.0, 99 * 100, 0.5, 99 * 100 + 100, 100.0)
    shared = Demand(1.0, 99.0, 99 * 100, 0.5, 99 * 10 + 10, 100.0, kv_shared_tokens=99 * 90)
    limits = Limits(max_batch_tokens=1000, kv_tokens=100)
    one, ten = capacity(time, alone, limits), capacity(time, shared, limits)
    assert one.rate_per_s == pytest.approx(1 / (0.01 * 100), rel=1e-6)
    assert ten.rate_per_s == pytest.approx(10 / (0.01 * 100), rel=1e-6)
    assert one.binding == ten.binding == "memory"
    single = [float(single_level_rate(time, demand, limits, 1000)[0]) for demand in (alone, shared)]
    assert single == pytest.approx([one.rate_per_s, ten.rate_per_s])


def test_the_plan_takes_hits_from_the_law() -> None:
    whole = Independent(Uniform(500, 1500), Uniform(50, 150))
    limits = Limits(max_batch_tokens=1024, kv_tokens=200_000)
    without, within = tile_plan(TIME, whole, limits), tile_plan(TIME, share_cached(whole, 0.6), limits)
    assert within.capacity.rate_per_s > 1.2 * without.capacity.rate_per_s
    assert within.ttft_floor_s < without.ttft_floor_s
    assert within.prefill_tokens / within.decode_tokens < without.prefill_tokens / without.decode_tokens

"""Workloads: mixes, rates, samples and plain data."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.arrivals import GammaArrivals, Poisson, TraceArrivals
from tileq_theory.errors import InputError
from tileq_theory.lengths import Fixed, GaussianCopula, Geometric, Independent, LogNormal, Pairs, Uniform
from tileq_theory.request_class import RequestClass
from tileq_theory.workload import Workload

CLASSES = (
    RequestClass("chat", Independent(LogNormal(6, 1), Geometric(mean=200, cap=512)), share=0.5, tbt_s=0.05),
    RequestClass("code", Pairs([2000, 3000, 10], [10, 20, 900]), share=0.3, ttft_s=1.0),
    RequestClass("batch", GaussianCopula(Uniform(1, 900), Uniform(1, 90), 0.4), share=0.9),
)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(3)), st.integers(1, 2000), st.sampled_from(["engine", "paper"]))
def test_order_of_classes_does_not_matter(order: list[int], chunk: int, convention: str) -> None:
    one = Workload(CLASSES)
    other = Workload([CLASSES[i] for i in order])
    mix = [w.demand(chunk_tokens=chunk, convention=convention) for w in (one, other)]  # type: ignore[arg-type]
    assert mix[0] == mix[1]
    assert one.lengths.correlation() == other.lengths.correlation()
    assert other.demands(chunk_tokens=chunk) == tuple(one.demands(chunk_tokens=chunk)[i] for i in order)


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-3, 1e3), st.integers(1, 2000))
def test_scale_of_shares_does_not_matter(factor: float, chunk: int) -> None:
    scaled = [RequestClass(c.name, c.lengths, c.share * factor) for c in CLASSES]
    one, other = Workload(CLASSES), Workload(scaled)
    assert other.shares == pytest.approx(one.shares, rel=1e-12)
    assert other.demand(chunk_tokens=chunk).vector() == pytest.approx(
        one.demand(chunk_tokens=chunk).vector(), rel=1e-12
    )


def test_mix_is_the_mean_of_its_classes_two_ways() -> None:
    work = Workload(CLASSES)
    sizes = np.array([64, 512, 4096])
    many = work.demand_by_chunk(sizes)
    for i, size in enumerate(sizes):
        mix = work.demand(chunk_tokens=int(size))
        by_hand = work.shares @ np.array([d.vector() for d in work.demands(chunk_tokens=int(size))])
        assert mix.vector() == pytest.approx(by_hand, rel=1e-12)
        assert many.memory_iterations[i] == pytest.approx(mix.memory_iterations, rel=1e-12)
        assert many.slot_iterations[i] == pytest.approx(mix.slot_iterations, rel=1e-12)


def test_a_class_of_share_zero_bounds_nothing() -> None:
    work = Workload([RequestClass("a", Pairs([10], [5])), RequestClass("b", Pairs([10**6], [5]), share=0)])
    assert work.demand(chunk_tokens=8).longest_prompt_tokens == 10
    assert work.lengths.longest_context == 15


def test_rates() -> None:
    work = Workload(CLASSES)
    assert work.rate_per_s is None
    assert work.with_rate(3.0).arrivals == Poisson(3.0)
    bursty = Workload(CLASSES, GammaArrivals(1.0, 3.0)).with_rate(4.0)
    assert bursty.arrivals == GammaArrivals(4.0, 3.0)
    assert bursty.classes == work.classes
    assert bursty.with_arrivals(None).rate_per_s is None


def test_sample_follows_shares_and_stays_the_same_when_reordered() -> None:
    work = Workload(CLASSES, Poisson(2.0))
    n = 40_000
    one = work.sample(np.random.default_rng(6), n)
    counts = np.bincount(one.class_index, minlength=3) / n
    # Hoeffding: |share - truth| > eps with probability at most 2 exp(-2 n eps^2); three classes at 1e-6 in all
    assert np.abs(counts - work.shares).max() <= math.sqrt(math.log(6e6) / (2 * n))
    turned = Workload(CLASSES[::-1], Poisson(2.0)).sample(np.random.default_rng(6), n)
    assert (one.prompt_tokens == turned.prompt_tokens).all()
    assert (one.output_tokens == turned.output_tokens).all()
    assert (one.arrival_s == turned.arrival_s).all()
    assert (one.class_index == 2 - turned.class_index).all()
    code = one.class_index == 1
    assert set(zip(one.prompt_tokens[code].tolist(), one.output_tokens[code].tolist(), strict=True)) <= {
        (2000, 10),
        (3000, 20),
        (10, 900),
    }


def test_sample_without_arrivals_says_what_to_do() -> None:
    with pytest.raises(InputError, match="with_rate"):
        Workload(CLASSES).sample(np.random.default_rng(0), 3)


def test_from_lengths() -> None:
    work = Workload.from_lengths([10, 20, 30], [1, 2, 3], [5.0, 1.0, 2.0], name="trace")
    assert work.rate_per_s == 0.5
    assert work.lengths.correlation() == pytest.approx(1)
    assert work.demand(chunk_tokens=10).prefill_tokens == 20
    assert Workload.from_lengths([10], [1]).arrivals is None
    assert Workload.from_lengths([10], [1], Poisson(3.0)).rate_per_s == 3.0
    with pytest.raises(InputError, match="outputs, row 1"):
        Workload.from_lengths([10, 20], [1, 0])
    with pytest.raises(InputError, match="at least 2"):
        Workload.from_lengths([10, 20], [1, 1], [0.5])


def test_plain_data_is_strict_json() -> None:
    for arrivals in (None, Poisson(1.0), TraceArrivals([0, 1, 3])):
        data = Workload(CLASSES, arrivals, name="mix").to_dict()
        text = json.dumps(data, allow_nan=False)
        assert json.loads(text) == data
    assert data["classes"][0]["lengths"]["prompt_tokens"]["max"] is None  # type: ignore[index]
    one = Workload([RequestClass("u", Independent(Uniform(1, 100), Fixed(7)))]).to_dict()
    prompt = one["lengths"]["prompt_tokens"]  # type: ignore[index]
    assert prompt == {"mean": 50.5, "p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Workload([]), "no classes"),
        (lambda: Workload([CLASSES[0], CLASSES[0]]), "more than once"),
        (lambda: Workload([RequestClass("a", Pairs([1], [1]), share=0.0)]), "all 0"),
        (lambda: RequestClass(" ", Pairs([1], [1])), "empty name"),
        (lambda: RequestClass("a", Pairs([1], [1]), share=-1.0), "share of class 'a'"),
        (lambda: RequestClass("a", Pairs([1], [1]), share=math.nan), "share of class 'a'"),
        (lambda: RequestClass("a", Pairs([1], [1]), tbt_s=0.0), "tbt_s of class 'a'"),
        (lambda: RequestClass("a", Pairs([1], [1]), ttft_s=-1.0), "ttft_s of class 'a'"),
        (lambda: Workload(CLASSES).with_rate(0.0), "rate"),
    ],
)
def test_bad_input_gets_one_line(make: object, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)

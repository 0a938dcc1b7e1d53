"""Random streams: what is drawn for one purpose does not lean on what is drawn for another."""

from __future__ import annotations

import numpy as np
import pytest

from tileq_engine.experiment_streams import Streams, crn_requests
from tileq_engine.predictors import predict
from tileq_engine.requests import Requests
from tileq_theory.lengths import Independent, LogNormal, Uniform
from tileq_theory.request_class import RequestClass
from tileq_theory.workload import Workload

N = 20_000
BOUND = 4.5 / np.sqrt(N)  # of a correlation: one false alarm in 10^5
LENGTHS = Independent(LogNormal.from_mean_cv(300.0, 1.0), LogNormal.from_mean_cv(200.0, 1.0))
LOAD = Workload((RequestClass("all", LENGTHS),)).with_rate(2.0)


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one.astype(float), other.astype(float))[0, 1])


@pytest.mark.parametrize("seed", [0, 7])
def test_tiers_and_errors_do_not_lean_on_the_requests_of_the_same_seed(seed: int) -> None:
    asked = Requests.from_workload(LOAD, N, seed)
    paying = asked.with_tiers(seed=seed, paying_share=0.3).paying
    noise = np.log(predict(asked, "noise", sigma=3.0, seed=seed) / asked.output_tokens)
    gaps = np.diff(asked.arrival_ps, prepend=0)
    for name, column in (("gaps", gaps), ("prompt", asked.prompt_tokens), ("output", asked.output_tokens)):
        assert abs(correlation(paying, column)) < BOUND, name
        if name != "output":  # a length rounded to 1 shows in the error of short outputs
            assert abs(correlation(noise, column)) < BOUND, name
    assert abs(correlation(paying, noise)) < BOUND
    # nor share the generator that a user makes of the same number
    g = np.random.default_rng(seed)
    assert not np.array_equal(paying, g.random(N) < 0.3)
    assert abs(correlation(noise, np.random.default_rng(seed).standard_normal(N))) < BOUND


def test_a_longer_run_begins_with_the_requests_of_a_shorter_one() -> None:
    classes = (
        RequestClass("chat", LENGTHS, 0.7),
        RequestClass("code", Independent(Uniform(10, 400), Uniform(1, 9)), 0.3, tbt_s=0.25),
    )
    mixed = Workload(classes).with_rate(3.0)
    for load in (LOAD, mixed):
        short, long = (crn_requests(load, count, Streams(3, 1), 2.0) for count in (1000, 9000))
        for name in ("arrival_ps", "prompt_tokens", "output_tokens", "class_index"):
            assert np.array_equal(getattr(short, name), getattr(long, name)[:1000]), name
        assert np.array_equal(long.tbt_limit_ps > 0, long.class_index == (1 if load is mixed else 9))
        # blocks do not repeat each other
        assert abs(correlation(long.prompt_tokens[:4096], long.prompt_tokens[4096:8192])) < 4.5 / 64


def test_rates_share_their_requests_and_replications_do_not() -> None:
    slow, fast = (crn_requests(LOAD, N, Streams(3), rate) for rate in (1.0, 4.0))
    assert np.array_equal(slow.output_tokens, fast.output_tokens)
    assert np.abs(slow.arrival_ps - 4 * fast.arrival_ps).max() <= 4
    other = crn_requests(LOAD, N, Streams(3, 1), 1.0)
    assert abs(correlation(slow.output_tokens, other.output_tokens)) < BOUND
    assert abs(correlation(np.diff(slow.arrival_ps), np.diff(other.arrival_ps))) < BOUND
    assert abs(correlation(np.diff(slow.arrival_ps), slow.prompt_tokens[1:])) < BOUND

"""Properties of the chain: laws, tail bound, units, monotony, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory import Fixed, Geometric, InputError, IterationTime, LogNormal
from tileq_theory.chain import (
    BatchRule,
    ChainSystem,
    DecodeFirst,
    DiscretePhaseType,
    PrefillFirst,
    RadRule,
    ThresholdRule,
    chain_capacity,
    decode_phases,
    iteration_chain,
)

RULES: list[BatchRule] = [DecodeFirst(), DecodeFirst(64, 2), PrefillFirst(40), RadRule(32), ThresholdRule(2)]
TIME = IterationTime(launch_s=0.008, tile_s=0.004, tile_tokens=16, token_s=5e-5)


def system(rule: BatchRule, **changes: object) -> ChainSystem:
    settings_: dict[str, object] = {
        "time": TIME,
        "rule": rule,
        "residents": 4,
        "prompt_tokens": 20,
        "outputs": Geometric(mean=6.0),
    }
    return ChainSystem(**(settings_ | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("load", [0.3, 0.9])
def test_laws_and_means_agree(rule: BatchRule, load: float) -> None:
    one = system(rule)
    answer = iteration_chain(one, rate_per_s=load * chain_capacity(one))
    n = np.arange(len(answer.in_system_law))
    assert math.isclose(answer.in_system_law.sum(), 1, rel_tol=1e-9)
    assert math.isclose(n @ answer.in_system_law, answer.mean_in_system, rel_tol=1e-9)
    assert math.isclose(answer.waiting_law.sum(), 1, rel_tol=1e-9)
    # work in = work out: each request decodes D steps, so E[decoding] = lambda D E[step of a resident] > lambda D least
    assert answer.mean_decoding >= answer.rate_per_s * one.mean_decode_steps * float(TIME(1)) * (1 - 1e-9)
    assert answer.mean_wait_s < answer.mean_ttft_s < answer.mean_response_s
    assert answer.lost_tail < 1e-9


@pytest.mark.parametrize("rule", RULES)
def test_the_tail_bound_holds_at_every_level(rule: BatchRule) -> None:
    one = system(rule)
    answer = iteration_chain(one, rate_per_s=0.8 * chain_capacity(one))
    assert answer.tail is not None
    beyond = np.cumsum(answer.boundary_law.sum(axis=1)[::-1])[::-1]
    for level in range(0, len(beyond), 7):
        assert beyond[level] <= answer.tail(level) * (1 + 1e-9)


@given(st.sampled_from(RULES), st.floats(0.1, 10), st.floats(0.2, 0.9))
@settings(max_examples=12, deadline=None)
def test_the_unit_of_time_does_not_matter(rule: BatchRule, factor: float, load: float) -> None:
    one, other = system(rule), system(rule, time=TIME.scaled(factor))
    rate = load * chain_capacity(one)
    first, second = iteration_chain(one, rate_per_s=rate), iteration_chain(other, rate_per_s=rate / factor)
    assert math.isclose(first.mean_in_system, second.mean_in_system, rel_tol=1e-8)
    assert math.isclose(first.mean_ttft_s * factor, second.mean_ttft_s, rel_tol=1e-8)


@pytest.mark.parametrize("rule", RULES)
def test_a_large_room_is_no_room_limit(rule: BatchRule) -> None:
    one = system(rule)
    rate = 0.5 * chain_capacity(one)
    free, roomy = iteration_chain(one, rate_per_s=rate), iteration_chain(system(rule, waiting_room=80), rate_per_s=rate)
    assert math.isclose(free.mean_in_system, roomy.mean_in_system, rel_tol=1e-8)
    assert roomy.loss < 1e-9 and roomy.method == "finite"


def test_waiting_grows_with_load_and_with_the_spread_of_iterations() -> None:
    one = system(DecodeFirst())
    waits = [iteration_chain(one, rate_per_s=x * chain_capacity(one)).mean_wait_s for x in (0.2, 0.5, 0.8, 0.95)]
    assert waits == sorted(waits)
    noisy = system(DecodeFirst(), duration_stages=1)
    assert chain_capacity(noisy) == chain_capacity(one)
    assert iteration_chain(noisy, rate_per_s=0.8 * chain_capacity(one)).mean_wait_s > waits[2]


def test_a_hundred_thousand_states() -> None:
    one = system(DecodeFirst(), residents=8)
    answer = iteration_chain(one, rate_per_s=0.9995 * chain_capacity(one))
    assert answer.states > 100_000
    assert math.isclose(answer.boundary_law.sum(), 1, rel_tol=1e-9)


def test_phase_type_moments() -> None:
    law = DiscretePhaseType.geometric(4.0)
    assert math.isclose(law.mean(), 4) and math.isclose(law.variance(), 12)
    assert math.isclose(decode_phases(Fixed(7), "engine").mean(), 6)
    assert decode_phases(Fixed(7), "paper").variance() == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"residents": 0}, "residents"),
        ({"residents": 1000}, "residents"),
        ({"time": TIME.with_(kv_token_s=1e-9)}, "kv_token_s"),
        ({"prompt_tokens": 0}, "prompt_tokens"),
        ({"prompt_tokens": {10: 0.5, 20: 0.6}}, "prompt_tokens"),
        ({"prompt_tokens": {10: -0.5, 20: 1.5}}, "prompt_tokens"),
        ({"outputs": LogNormal(4.0, 1.0)}, "output law"),
        ({"waiting_room": 0}, "waiting_room"),
        ({"duration_stages": 0}, "duration_stages"),
        ({"rule": RadRule(16)}, "prompt_tokens is 20"),
        ({"rule": DecodeFirst(8)}, "prompt_tokens is 20"),
    ],
)
def test_systems_that_cannot_be(changes: dict[str, object], message: str) -> None:
    rule = changes.pop("rule", DecodeFirst())
    with pytest.raises(InputError, match=message):
        system(rule, **changes)  # type: ignore[arg-type]

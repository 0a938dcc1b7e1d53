"""Certificates of the policies of one node against their closed-form capacities; RAD's backlog function."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory import InputError, IterationTime
from tileq_theory.capacity import Limits
from tileq_theory.capacity.restricted import exclusive_capacity
from tileq_theory.certificates import backlog_drift_tokens, certify, exclusive_modes, rad_modes, work_conserving_modes
from tileq_theory.closed_forms import closed_form
from tileq_theory.lengths import Fixed, Independent

RAD = IterationTime.rad(t_lin_s=0.004, t_nl_s=5e-6, tile_tokens=128)
DAI = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
MEAN_OUTPUT = 185.00078


@pytest.mark.parametrize(
    ("rate", "verdict"), [(36.24, "stable"), (36.26, "unstable"), (5.0, "stable"), (99, "unstable")]
)
def test_rads_reference_instance_turns_at_its_capacity(rate: float, verdict: str) -> None:
    model = rad_modes(RAD, rate_per_s=rate, prefill_tokens=576, decode_tokens=MEAN_OUTPUT, b_col=128)
    proof = certify(model)
    assert proof.verdict == verdict and proof.verify(model)
    if verdict == "stable":  # with one tile both tokens cost the same, so V is the backlog in slots
        assert math.isclose(float(proof.weights[0][0] / proof.weights[0][1]), 1, rel_tol=1e-6)
    else:
        assert proof.direction is not None and min(proof.direction) >= 0


@given(st.floats(0.1, 200), st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 512))
@settings(max_examples=60, deadline=None)
def test_the_backlogs_drift_is_what_arrives_less_a_tile(rate: float, prompt: int, output: int, tile: int) -> None:
    drift = backlog_drift_tokens(RAD, rate_per_s=rate, prefill_tokens=prompt, decode_tokens=output, b_col=tile)
    slot = Fraction(float(RAD.tau_s(tile)))
    assert drift == Fraction(rate) * (prompt + output) * slot - tile


@given(st.floats(0.5, 1.5).filter(lambda x: abs(x - 1) > 1e-4), st.integers(10, 3000), st.integers(10, 3000))
@settings(max_examples=25, deadline=None)
def test_rad_with_two_tiles_and_exclusive_batches_turn_at_their_closed_form(
    load: float, prompt: int, output: int
) -> None:
    seconds_a_request = prompt * float(RAD.tau_s(512)) / 512 + output * float(RAD.tau_s(64)) / 64
    capacity = 1 / seconds_a_request
    settings_ = {"rate_per_s": load * capacity, "prefill_tokens": prompt, "decode_tokens": output}
    expected = "stable" if load < 1 else "unstable"
    assert certify(rad_modes(RAD, b_col=64, b_lcm=512, **settings_)).verdict == expected
    assert certify(exclusive_modes(RAD, token_budget=512, residents=64, **settings_)).verdict == expected


@pytest.mark.parametrize(("load", "verdict"), [(0.99, "stable"), (1.01, "unstable")])
def test_work_conserving_batches_turn_at_dais_boundary(load: float, verdict: str) -> None:
    capacity = closed_form("dai_capacity").evaluate(
        nodes=1,
        launch_s=0.01128,
        tile_s=0.03547,
        tile_tokens=128,
        batch_tokens=512,
        prefill_tokens=129,
        decode_tokens=112,
    )
    assert math.isclose(capacity, 13.8710, abs_tol=5e-5)
    demand = {"rate_per_s": load * capacity, "prefill_tokens": 129, "decode_tokens": 112, "token_budget": 512}
    model = work_conserving_modes(DAI, **demand)
    proof = certify(model)
    assert proof.verdict == verdict and proof.verify(model)
    # 128 residents decode at most 128 tokens an iteration, fewer than the 112/241 of 512 that arrive
    assert certify(work_conserving_modes(DAI, residents=128, **demand)).verdict == "unstable"
    assert certify(work_conserving_modes(DAI, residents=240, **demand)).verdict == verdict


@pytest.mark.parametrize("bad", [{"rate_per_s": 0.0}, {"rate_per_s": -1.0}, {"prefill_tokens": -5}, {"b_col": 0}])
def test_numbers_that_cannot_be(bad: dict[str, float]) -> None:
    good: dict[str, float] = {"rate_per_s": 1.0, "prefill_tokens": 10, "decode_tokens": 10, "b_col": 8}
    with pytest.raises(InputError, match=next(iter(bad))):
        rad_modes(RAD, **(good | bad))  # type: ignore[arg-type]


def test_slots_that_cannot_fill_the_budget_bind_a_policy_that_would_fill_it() -> None:
    """64 prompt and 512 output tokens: 128 slots decode and refill 144 tokens of the 512, at the price of 256."""
    demand = {"prefill_tokens": 64, "decode_tokens": 511, "token_budget": 512, "residents": 128}
    capacity = 128 / 512 / float(DAI.tau_s(128 * 575 / 512))
    for load, verdict in ((0.99, "stable"), (1.01, "undecided")):
        model = work_conserving_modes(DAI, rate_per_s=load * capacity, **demand)
        proof = certify(model)
        assert (proof.verdict == "stable") == (load < 1), verdict
        assert proof.verify(model)


def test_reading_kv_and_attention_take_their_time() -> None:
    time = IterationTime(launch_s=0.01, token_s=1e-5, kv_token_s=1e-8, pair_s=1e-9, sequence_s=1e-6)
    demand = {"prefill_tokens": 500.0, "decode_tokens": 100.0, "attention_pairs": 125250.0, "kv_read_tokens": 55050.0}
    prefill_s = (0.01 + 512e-5 + 512 * 250.5e-9 + 512 / 500 * 1e-6) / 512
    decode_s = (0.01 + 64e-5 + 64 * 550.5e-8 + 64e-6) / 64
    capacity = 1 / (500 * prefill_s + 100 * decode_s)
    for load, verdict in ((0.999, "stable"), (1.001, "unstable")):
        rate = load * capacity
        assert certify(rad_modes(time, rate_per_s=rate, b_col=64, b_lcm=512, **demand)).verdict == verdict
        assert (
            certify(exclusive_modes(time, rate_per_s=rate, token_budget=512, residents=64, **demand)).verdict == verdict
        )


@pytest.mark.parametrize(("load", "verdict"), [(0.999, "stable"), (1.001, "unstable")])
def test_few_slots_do_not_fill_a_prefill_batch(load: float, verdict: str) -> None:
    """8 prompts of 50 tokens are 400: a budget of 1024 is never used, and the boundary is that of 400."""
    time = IterationTime(launch_s=0.01, token_s=1e-5)
    capacity = 1 / ((0.01 + 400e-5) / 8 + 20 * (0.01 + 8e-5) / 8)
    asked = {"rate_per_s": load * capacity, "prefill_tokens": 50, "decode_tokens": 20}
    assert certify(exclusive_modes(time, token_budget=1024, residents=8, **asked)).verdict == verdict


@pytest.mark.parametrize(("residents", "decode_s"), [(128, 0.022), (130, 0.042)])
def test_full_batches_are_the_best_where_they_fill_their_tiles(residents: int, decode_s: float) -> None:
    """The program of all exclusive policies is the boundary at 128 decodes on tiles of 128, far beyond it at 130."""
    time = IterationTime(launch_s=0.002, tile_s=0.02, tile_tokens=128)
    demand = Independent(Fixed(200), Fixed(300)).demand(chunk_tokens=1024, convention="paper")
    best = exclusive_capacity(time, demand, Limits(max_batch_tokens=1024, max_num_seqs=residents)).rate_per_s
    full = 1 / (200 * 0.162 / 1024 + 300 * decode_s / residents)
    assert full == pytest.approx(best, rel=1e-9) if residents == 128 else full < 0.65 * best
    asked = {"prefill_tokens": 200, "decode_tokens": 300, "token_budget": 1024, "residents": residents}
    assert certify(exclusive_modes(time, rate_per_s=0.999 * full, **asked)).verdict == "stable"
    assert certify(exclusive_modes(time, rate_per_s=1.001 * full, **asked)).verdict == "unstable"

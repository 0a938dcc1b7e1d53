"""Gate-and-route: the published optimum, its certificate, the region in closed form, and properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.closed_forms import closed_form
from tileq_theory.errors import InputError
from tileq_theory.gate_and_route import Fleet, GateAndRoute, gate_and_route, gate_and_route_scale, service_rates

FLEET = Fleet(alpha_s=0.0174, beta_s=6.2e-5, chunk_tokens=256, max_sequences=16, solo_tokens_per_s=45.45)
BUNDLED = {
    "prompts_tokens": [300, 3000], "outputs_tokens": [1000, 400], "rates_per_s": [0.5, 0.5],
    "patience_rates_per_s": [0.1, 0.1], "price_prefill": 0.1, "price_decode": 0.2,
}  # fmt: skip


def printed(values: np.ndarray, digits: list[str]) -> None:
    assert [f"{value:.{len(text.partition('.')[2])}f}" for value, text in zip(values, digits, strict=True)] == digits


def test_published_instance() -> None:
    answer = gate_and_route(FLEET, **BUNDLED)
    assert f"{answer.revenue_per_s:.5f}" == "297.70317"
    printed(answer.prefill_share, ["0.0182583", "0.1949531"])
    printed(answer.mixed_decodes, ["0", "3.19817"])
    printed(answer.solo_decodes, ["10.30307", "2.28554"])
    printed(answer.prefill_queue, ["0.31725", "0"])
    assert np.abs(answer.decode_queue).max() <= 1e-9
    assert answer.kkt.worst < 1e-9


def check_point(fleet: Fleet, answer: GateAndRoute, case: dict) -> None:
    """Recompute every constraint and the revenue from the specification."""
    rates = service_rates(fleet, case["prompts_tokens"], case["outputs_tokens"])
    lam, theta = np.array(case["rates_per_s"]), np.array(case["patience_rates_per_s"])
    x, y_m, y_s = answer.prefill_share, answer.mixed_decodes, answer.solo_decodes
    slots, share, tolerance = fleet.max_sequences, x.sum(), 1e-7
    assert min(x.min(), y_m.min(), y_s.min(), answer.prefill_queue.min(), answer.decode_queue.min()) >= 0
    assert share <= 1 + tolerance
    assert y_m.sum() <= (slots - 1) * share + tolerance
    assert y_s.sum() <= slots * (1 - share) + tolerance
    assert np.allclose(lam - theta * answer.prefill_queue, rates.prefill * x, atol=tolerance)
    completed = rates.mixed * y_m + rates.solo * y_s
    assert np.allclose(rates.prefill * x - theta * answer.decode_queue, completed, atol=tolerance)
    assert np.allclose(completed, answer.throughput_per_s)
    assert np.allclose(lam - completed, answer.abandoned_per_s, atol=tolerance)
    prefill = case["price_prefill"] * np.array(case["prompts_tokens"])
    decode = case["price_decode"] * np.array(case["outputs_tokens"])
    earned = (
        (prefill + decode) @ completed
        if answer.charging == "bundled"
        else prefill @ (rates.prefill * x) + decode @ completed
    )
    assert answer.revenue_per_s == pytest.approx(earned, rel=1e-9, abs=1e-12)


def random_case(seed: int, count: int) -> tuple[Fleet, dict]:
    rng = np.random.default_rng(seed)
    fleet = Fleet(
        float(rng.uniform(0.005, 0.05)), float(rng.uniform(1e-5, 2e-4)), float(rng.integers(64, 1024)),
        int(rng.integers(2, 64)), float(rng.uniform(10, 80)),
    )  # fmt: skip
    case = {
        "prompts_tokens": rng.integers(50, 4000, count).tolist(),
        "outputs_tokens": rng.integers(20, 2000, count).tolist(),
        "rates_per_s": rng.uniform(0.01, 1, count).tolist(),
        "patience_rates_per_s": rng.uniform(0.01, 1, count).tolist(),
        "price_prefill": float(rng.uniform(0, 1)), "price_decode": float(rng.uniform(0.01, 1)),
    }  # fmt: skip
    return fleet, case


@pytest.mark.parametrize("charging", ["bundled", "separate"])
@pytest.mark.parametrize(("seed", "count"), [(0, 1), (1, 2), (2, 3), (3, 5), (4, 8)])
def test_random_instances_against_another_solver(charging, seed, count) -> None:
    from scipy.optimize import linprog

    fleet, case = random_case(seed, count)
    answer = gate_and_route(fleet, **case, charging=charging)
    check_point(fleet, answer, case)
    assert answer.kkt.worst < 1e-8
    # the same program written with the queues themselves as variables, interior point
    rates = service_rates(fleet, case["prompts_tokens"], case["outputs_tokens"])
    lam, theta = np.array(case["rates_per_s"]), np.array(case["patience_rates_per_s"])
    prefill = case["price_prefill"] * np.array(case["prompts_tokens"])
    decode = case["price_decode"] * np.array(case["outputs_tokens"])
    late, early = (prefill + decode, 0 * prefill) if charging == "bundled" else (decode, prefill)
    one, nil, none, slots = np.ones(count), np.zeros(count), np.zeros((count, count)), fleet.max_sequences
    cost = -np.concatenate([early * rates.prefill, late * rates.mixed, late * rates.solo, nil, nil])
    upper = np.array([
        np.concatenate([one, nil, nil, nil, nil]),
        np.concatenate([-(slots - 1) * one, one, nil, nil, nil]),
        np.concatenate([slots * one, nil, one, nil, nil]),
    ])  # fmt: skip
    equal = np.block([
        [np.diag(rates.prefill), none, none, np.diag(theta), none],
        [np.diag(rates.prefill), -np.diag(rates.mixed), -np.diag(rates.solo), none, -np.diag(theta)],
    ])  # fmt: skip
    other = linprog(cost, upper, [1, 0, slots], equal, np.concatenate([lam, nil]), method="highs-ipm")
    assert answer.revenue_per_s == pytest.approx(-other.fun, rel=1e-6)


def test_prices_are_derivatives() -> None:
    base = gate_and_route(FLEET, **BUNDLED)
    step = 1e-4
    for i in range(2):
        moved = []
        for sign in (1, -1):
            rates = list(BUNDLED["rates_per_s"])
            rates[i] += sign * step
            moved.append(gate_and_route(FLEET, **{**BUNDLED, "rates_per_s": rates}).revenue_per_s)
        assert base.prices.arrival[i] == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-6, abs=1e-6)
    # strong duality: the revenue is the price of what limits it
    limits = base.prices.gpu + base.prices.solo_slot * FLEET.max_sequences
    arriving = base.prices.arrival @ np.array(BUNDLED["rates_per_s"])
    assert limits + arriving == pytest.approx(base.revenue_per_s, rel=1e-9)


def test_permuting_classes_permutes_the_answer() -> None:
    fleet, case = random_case(7, 4)
    order = [2, 0, 3, 1]
    straight = gate_and_route(fleet, **case)
    shuffled = gate_and_route(
        fleet, **{k: [v[i] for i in order] if isinstance(v, list) else v for k, v in case.items()}
    )
    assert shuffled.revenue_per_s == pytest.approx(straight.revenue_per_s, rel=1e-9)
    assert shuffled.throughput_per_s == pytest.approx(straight.throughput_per_s[order], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("factor", [1e-3, 60.0])
def test_another_time_unit_and_currency(factor) -> None:
    """All times times f: rates and revenue divide by f; all prices times c: revenue times c."""
    fleet = Fleet(
        FLEET.alpha_s * factor, FLEET.beta_s * factor, FLEET.chunk_tokens, FLEET.max_sequences,
        FLEET.solo_tokens_per_s / factor,
    )  # fmt: skip
    case = {
        **BUNDLED, "rates_per_s": [r / factor for r in BUNDLED["rates_per_s"]],
        "patience_rates_per_s": [r / factor for r in BUNDLED["patience_rates_per_s"]], "price_prefill": 1e-7,
        "price_decode": 2e-7,
    }  # fmt: skip
    answer, base = gate_and_route(fleet, **case), gate_and_route(FLEET, **BUNDLED)
    assert answer.revenue_per_s == pytest.approx(1e-6 * base.revenue_per_s / factor, rel=1e-8)
    assert answer.prefill_share == pytest.approx(base.prefill_share, rel=1e-7, abs=1e-9)


# ---------------------------------------------------------------------- nobody gives up


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_region_is_the_closed_form(seed, count) -> None:
    fleet, case = random_case(seed, count)
    direction = np.array(case["rates_per_s"])
    scale = gate_and_route_scale(
        fleet,
        prompts_tokens=case["prompts_tokens"],
        outputs_tokens=case["outputs_tokens"],
        direction=direction.tolist(),
    )
    closed = closed_form("gate_and_route_capacity").evaluate(
        prefill_tokens=float(direction @ np.array(case["prompts_tokens"])),
        decode_tokens=float(direction @ np.array(case["outputs_tokens"])), mixed_iteration_s=fleet.mixed_iteration_s,
        chunk_tokens=fleet.chunk_tokens, max_sequences=fleet.max_sequences, solo_tokens_per_s=fleet.solo_tokens_per_s,
    )  # fmt: skip
    assert scale == pytest.approx(closed, rel=1e-7)


def test_infinite_patience_inside_and_outside_the_region() -> None:
    patient = {**BUNDLED, "patience_rates_per_s": [0.0, 0.0]}
    with pytest.raises(InputError, match=r"at most 0\.957766 times these rates"):
        gate_and_route(FLEET, **patient)
    inside = gate_and_route(FLEET, **{**patient, "rates_per_s": [0.5 * 0.957, 0.5 * 0.957]})
    check_point(FLEET, inside, {**patient, "rates_per_s": [0.5 * 0.957, 0.5 * 0.957]})
    assert inside.throughput_per_s == pytest.approx(np.full(2, 0.5 * 0.957), rel=1e-9)
    assert inside.prefill_queue.tolist() == [0.0, 0.0]
    mixed = gate_and_route(FLEET, **{**BUNDLED, "patience_rates_per_s": [0.1, 0.0]})
    assert mixed.throughput_per_s[1] == pytest.approx(0.5, rel=1e-9)  # who never gives up is served


def test_nothing_arrives() -> None:
    answer = gate_and_route(FLEET, **{**BUNDLED, "rates_per_s": [0.0, 0.0]})
    assert answer.revenue_per_s == 0
    assert answer.mixed_share == 0


def test_one_sequence_leaves_no_mixed_decodes() -> None:
    fleet = Fleet(alpha_s=0.0174, beta_s=6.2e-5, chunk_tokens=256, max_sequences=1, solo_tokens_per_s=45.45)
    answer = gate_and_route(fleet, **BUNDLED)
    check_point(fleet, answer, BUNDLED)
    assert answer.mixed_decodes.max() == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rates_per_s": [0.5]}, "rates_per_s has 1 entries; expected one for each of 2 classes"),
        ({"rates_per_s": [0.5, -1]}, "rates_per_s[1] is -1"),
        ({"patience_rates_per_s": [0.5, float("nan")]}, "patience_rates_per_s[1] is nan"),
        ({"prompts_tokens": [300, 0]}, "prompts_tokens[1] is 0"),
        ({"outputs_tokens": [300]}, "2 prompts and 1 outputs"),
        ({"price_decode": -1}, "price_decode is -1"),
    ],
)
def test_bad_parameters_are_named(changes, message) -> None:
    with pytest.raises(InputError) as caught:
        gate_and_route(FLEET, **{**BUNDLED, **changes})
    assert message in str(caught.value)


def test_a_fleet_is_checked() -> None:
    for changes, message in (
        ({"alpha_s": -1}, "alpha_s is -1"),
        ({"chunk_tokens": 0}, "chunk_tokens is 0"),
        ({"max_sequences": 0}, "max_sequences is 0"),
        ({"alpha_s": 0, "beta_s": 0}, r"alpha_s \+ beta_s"),
    ):
        base = {"alpha_s": 1, "beta_s": 1, "chunk_tokens": 1, "max_sequences": 1, "solo_tokens_per_s": 1}
        with pytest.raises(InputError, match=message):
            Fleet(**{**base, **changes})
    with pytest.raises(InputError, match="direction is 0 for every class"):
        gate_and_route_scale(FLEET, prompts_tokens=[1], outputs_tokens=[1], direction=[0])

"""Large chains: the sparse solution against the matrix-analytic one, its residual, its bound; laws that match means."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tileq_theory import Geometric, InputError, IterationTime
from tileq_theory.chain import (
    BatchRule,
    ChainSystem,
    DecodeFirst,
    DiscretePhaseType,
    PrefillFirst,
    RadRule,
    ThresholdRule,
    chain_capacity,
    iteration_chain,
    solve,
)

TIME = IterationTime(launch_s=0.008, tile_s=0.004, tile_tokens=16, token_s=5e-5, sequence_s=1e-4)
MIXTURE = DiscretePhaseType(np.array([0.6, 0.4]), np.diag([0.8, 0.95]))


def system(rule: BatchRule, residents: int, **changes: object) -> ChainSystem:
    given: dict[str, object] = {"prompt_tokens": 20, "outputs": Geometric(mean=30.0)} | changes
    return ChainSystem(time=TIME, rule=rule, residents=residents, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "load"),
    [
        (system(DecodeFirst(), 8), 0.8),
        (system(DecodeFirst(60, 3), 8, convention="paper"), 0.9),
        (system(PrefillFirst(60), 8, prompt_tokens={20: 0.5, 40: 0.5}), 0.8),
        (system(RadRule(32), 12), 0.9),
        (system(ThresholdRule(3), 6), 0.7),
        (system(PrefillFirst(), 4, outputs=MIXTURE), 0.8),
        (system(DecodeFirst(), 4, outputs=MIXTURE, convention="paper"), 0.8),
    ],
)
def test_both_methods_agree(one: ChainSystem, load: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rate = load * chain_capacity(one)
    dense = iteration_chain(one, rate_per_s=rate)
    monkeypatch.setattr(solve, "_MOST_DENSE", 0)
    sparse = iteration_chain(one, rate_per_s=rate)
    assert (dense.method, sparse.method) == ("matrix-analytic", "truncated")
    assert sparse.residual < 1e-12 and dense.residual < 1e-12 and sparse.lost_tail <= 1e-12
    for name in ("mean_in_system", "mean_wait_s", "mean_ttft_s", "mean_response_s", "wait_variance_s2", "idle_share"):
        assert math.isclose(getattr(dense, name), getattr(sparse, name), rel_tol=1e-8), name
    assert np.abs(dense.in_system_law[:40] - sparse.in_system_law[:40]).max() < 1e-11


@pytest.mark.parametrize(("rule", "residents"), [(DecodeFirst(), 48), (PrefillFirst(), 48), (RadRule(32), 96)])
def test_many_residents(rule: BatchRule, residents: int) -> None:
    one = system(rule, residents)
    answer = iteration_chain(one, rate_per_s=0.85 * chain_capacity(one))
    assert answer.residual < 1e-12 and answer.lost_tail < 1e-8
    n = np.arange(len(answer.in_system_law))
    assert math.isclose(n @ answer.in_system_law, answer.mean_in_system, rel_tol=1e-9)
    # two accounts of the residents: Little's law over response and wait, and the law of the number in the system
    inside = answer.rate_per_s * (answer.mean_response_s - answer.mean_wait_s)
    assert math.isclose(inside, answer.mean_in_system - answer.mean_waiting, rel_tol=1e-9)
    # and one that knows nothing of the chain: each step of D takes a whole iteration
    assert answer.mean_response_s - answer.mean_ttft_s >= one.mean_decode_steps * float(TIME(1, 0, 0, 1))


def test_a_large_finite_room() -> None:
    one = system(DecodeFirst(), 40)
    free = iteration_chain(one, rate_per_s=0.6 * chain_capacity(one))
    roomy = iteration_chain(system(DecodeFirst(), 40, waiting_room=200), rate_per_s=0.6 * chain_capacity(one))
    assert roomy.method == "finite" and roomy.states > 8000 and roomy.residual < 1e-12
    assert math.isclose(free.mean_in_system, roomy.mean_in_system, rel_tol=1e-8)


def test_what_is_too_large_is_refused_before_it_is_tried() -> None:
    one = system(DecodeFirst(), 64)
    with pytest.raises(InputError, match="states"):
        iteration_chain(one, rate_per_s=0.9999 * chain_capacity(one))

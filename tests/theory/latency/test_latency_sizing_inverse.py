"""The inverse of the sizing model where the ITL falls with the rate: one chunk more spreads the prefill."""

from __future__ import annotations

import numpy as np
import pytest

from tileq_theory import InputError
from tileq_theory.latency import SizingModel

LONG = SizingModel(30, 0.05, 0.0005, 6000, 20, 64, 64)  # long prompts, short answers: 1 to 29 chunks


@pytest.mark.parametrize("itl_ms", [60.0, 337.85, 489.29, 532.56, 554.19])
def test_no_faster_rate_of_a_sweep_meets_the_limit(itl_ms: float) -> None:
    best = LONG.largest_rate(itl_ms=itl_ms)
    assert best.itl_ms <= itl_ms
    rates = np.geomspace(best.rate_per_s * (1 + 1e-6), 20 * LONG.saturation_per_s, 400)
    assert min(LONG.at(float(rate)).itl_ms for rate in rates) > itl_ms


def test_the_itl_does_fall_somewhere() -> None:
    rates = np.linspace(0.1, 1.5, 400) * LONG.saturation_per_s
    assert np.diff([LONG.at(float(rate)).itl_ms for rate in rates]).min() < -1


def test_both_limits_hold_at_the_answer_and_one_binds() -> None:
    both = LONG.largest_rate(ttft_ms=5000.0, itl_ms=489.29)
    assert both.ttft_ms <= 5000.0 and both.itl_ms <= 489.29
    alone = min(LONG.largest_rate(ttft_ms=5000.0).rate_per_s, LONG.largest_rate(itl_ms=489.29).rate_per_s)
    assert both.rate_per_s <= alone


@pytest.mark.parametrize("blocked", [1.0, 2.0])
def test_a_share_is_below_one(blocked: float) -> None:
    with pytest.raises(InputError, match="blocked"):
        LONG.largest_rate(blocked=blocked)


def test_the_chunks_of_a_full_batch_are_those_of_the_largest_batch() -> None:
    """At ever higher rates X comes to B_max and by rounding may pass it; the ITL must not jump."""
    values = [LONG.at(float(factor) * LONG.saturation_per_s).itl_ms for factor in np.geomspace(1.5, 1e3, 300)]
    assert max(values) - min(values) < 1e-2

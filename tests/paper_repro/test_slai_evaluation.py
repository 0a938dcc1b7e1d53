"""SLAI's evaluation: requests, both conventions, feasibility, the search, and what must coincide exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paper_repro.slai import serving
from paper_repro.slai.gains import log_ratio, percent
from paper_repro.slai.headline import ITEM as HEADLINE
from paper_repro.slai.headline_search import capacities, pair
from paper_repro.slai.serving import LIMITS_S, POLICIES, SARATHI, SLAI, Measured, draw, feasible, lengths_at_hand, serve
from paper_repro.slai.variants import AUTHORS, GROUPS, variants
from tileq_engine.metrics_slai import slai_feasible
from tileq_engine.run import Run
from tileq_theory.errors import InputError

FITTED: dict[str, Any] = {"lengths": "fitted"}


@pytest.fixture
def without_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TILEQ_DATA", str(tmp_path))
    serving._recorded.cache_clear()
    yield
    serving._recorded.cache_clear()


# -------------------------------------------------------------------- requests


def test_a_higher_rate_brings_the_same_requests_closer_together() -> None:
    slow, fast = (draw(rate, 200.0, "fitted", "cut", 3, 1) for rate in (0.8, 1.6))
    assert len(fast) > len(slow) > 100
    for name in ("prompt_tokens", "output_tokens", "paying", "tbt_limit_ps"):
        np.testing.assert_array_equal(getattr(fast, name)[: len(slow)], getattr(slow, name))
    np.testing.assert_allclose(fast.arrival_ps[: len(slow)] * 2, slow.arrival_ps, atol=2)
    other = draw(0.8, 200.0, "fitted", "cut", 3, 2)
    assert not np.array_equal(other.prompt_tokens[:100], slow.prompt_tokens[:100])


def test_arrivals_and_tiers_follow_their_laws() -> None:
    """Gaps cut at three means: rate 1/(1 - exp(-3)) of the stated one; false alarm below 1e-4 for each bound."""
    rate, horizon, count = 2.0, 3000.0, 8
    cut, poisson = (
        np.array([len(draw(rate, horizon, "fitted", kind, 11, r)) for r in range(count)]) for kind in ("cut", "poisson")
    )
    for found, true in ((cut, rate / -math.expm1(-3.0)), (poisson, rate)):
        assert abs(found.sum() - true * horizon * count) < 4 * math.sqrt(true * horizon * count)
    asked = [draw(rate, horizon, "fitted", "cut", 11, r) for r in range(count)]
    paying = np.concatenate([a.paying for a in asked])
    assert abs(paying.mean() - 0.05) < 4 * math.sqrt(0.05 * 0.95 / paying.size)
    limits = {int(v) for v in np.unique(asked[0].tbt_limit_ps)}
    assert limits == {round(s * 1e12) for s in LIMITS_S.values()}
    assert all(int(v) == 10**11 for v in asked[0].tbt_limit_ps[asked[0].paying])


def test_more_requests_than_the_pool_are_refused() -> None:
    with pytest.raises(InputError, match="requests end before"):
        draw(50.0, 2100.0, "fitted", "cut", 0, 0)


def test_recorded_lengths_are_rows_of_the_file_without_repetition(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEQ_DATA", str(data))
    serving._recorded.cache_clear()
    serving._pool.cache_clear()
    assert lengths_at_hand() == "recorded"
    rows = np.loadtxt(data / serving.LENGTHS_FILE, delimiter=",", skiprows=1, usecols=(0, 1), dtype=np.int64)
    pool = serving._pool("recorded", 5, 0)
    known, times = np.unique(rows, axis=0, return_counts=True)
    drawn, repeated = np.unique(pool.T, axis=0, return_counts=True)
    most = {tuple(k): int(t) for k, t in zip(known.tolist(), times, strict=True)}
    assert all(n <= most[tuple(k)] for k, n in zip(drawn.tolist(), repeated, strict=True))


def test_without_the_file_the_shipped_workload_stands_in(without_file: None) -> None:
    assert lengths_at_hand() == "fitted"
    assert "fitted lengths" not in variants()["trace"]
    assert {p["lengths"] for p in HEADLINE.pieces(HEADLINE.smoke)} == {"fitted"}
    with pytest.raises(InputError, match="use 'fitted'"):
        serve(SARATHI, 1.0, 60.0, {"lengths": "recorded"}, 0, 0)


# -------------------------------------------------------------------- serving


@pytest.mark.parametrize(("slai", "other"), [("SLAI FCFS, fixed", SARATHI), ("SLAI SPF, fixed", "Sarathi-Serve SPF")])
def test_with_long_batches_a_fixed_offset_serves_decodes_first(slai: str, other: str) -> None:
    """Theta 10 and batches of 50 ms or more: every decode is critical, and nothing tells SLAI from Sarathi-Serve."""
    slow = {**FITTED, "scale": 3.0}
    ours, theirs = (asdict(serve(p, 0.5, 200.0, slow, 2, 0)) for p in (slai, other))
    assert ours == theirs and ours["finished"] > 40
    fast = {**FITTED, "scale": 0.8}
    assert asdict(serve(slai, 1.8, 200.0, fast, 2, 0)) != asdict(serve(other, 1.8, 200.0, fast, 2, 0))


def test_feasible_is_the_authors_criterion(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    measure = Run.metrics

    def metrics(self: Run, **options: Any) -> Any:
        if "intervals" in options:
            seen.append(slai_feasible(self))
        return measure(self, **options)

    monkeypatch.setattr(Run, "metrics", metrics)
    found = [feasible(serve(p, r, 150.0, FITTED, 4, 0)) for p in (SLAI, SARATHI, "vLLM") for r in (0.3, 1.2, 2.4)]
    assert found == seen and len(set(found)) == 2


def test_each_limit_binds_by_itself() -> None:
    good = Measured(0.4, 1.0, 0.5, 0.4, {"paying": 0.1, "standard": 0.5}, 10, 0)
    assert feasible(good)
    assert not feasible(replace(good, ttft_p50_s=0.5)) and not feasible(replace(good, ttft_p50_s=math.nan))
    for tier in LIMITS_S:
        late = replace(good, tbt_p99_s={**good.tbt_p99_s, tier: 0.51})
        assert not feasible(late) and feasible(late, tbt=False)
        assert feasible(replace(good, tbt_p99_s={**good.tbt_p99_s, tier: math.nan}))


@pytest.mark.parametrize("label", POLICIES)
def test_zero_gaps_and_finished_requests_are_all_that_the_conventions_change_here(label: str) -> None:
    """On one stream, at a light load: two zero gaps a request lower p99 TBT or leave it; TTFT is the same moment."""
    slai, own = (serve(label, 0.3, 200.0, {**FITTED, "convention": c}, 6, 0) for c in ("slai", "tileq"))
    assert slai.finished == own.finished
    assert all(slai.tbt_p99_s[t] <= own.tbt_p99_s[t] for t in LIMITS_S if math.isfinite(own.tbt_p99_s[t]))


# -------------------------------------------------------------------- search


def test_a_capacity_meets_and_a_step_above_does_not() -> None:
    settings = {"horizon_s": 120.0, "step": 0.1}
    found = capacities(SARATHI, settings, FITTED, 0, 0)
    assert 0.05 < found["both"] <= found["ttft"] < 3.2

    def at(rate: float, tbt: bool) -> bool:
        return feasible(serve(SARATHI, rate, 120.0, FITTED, 0, 0), tbt=tbt)

    assert at(found["both"], True) and at(found["ttft"], False)
    assert found == capacities(SARATHI, settings, FITTED, 0, 0)
    slow = capacities(SARATHI, settings, {**FITTED, "scale": 40.0}, 0, 0)
    assert slow == {"ttft": 0.0, "both": 0.0}


def test_a_pair_is_two_capacities_and_medians_at_slais() -> None:
    settings = {"horizon_s": 120.0, "step": 0.4}
    found = pair(settings, FITTED, 1, 0)
    assert found["slai_both"] == capacities(SLAI, settings, FITTED, 1, 0)["both"]
    assert found["slai_median_s"] < 0.5
    assert found["sarathi_median_s"] == serve(SARATHI, found["slai_ttft"], 120.0, FITTED, 1, 0).ttft_p50_s


def test_variants_change_one_thing_and_are_told_apart() -> None:
    groups = variants()
    assert tuple(groups) == GROUPS and groups["convention"][AUTHORS] == {}
    labels = [v for members in groups.values() for v in members]
    assert len(labels) == len(set(labels))
    for members in groups.values():
        for changes in members.values():
            assert set(changes) <= set(serving.BASE)
    pieces = HEADLINE.pieces(HEADLINE.full)
    assert {p["variant"] for p in pieces if "variant" in p} == set(labels)
    assert {p["policy"] for p in pieces if "capacity" in p} == set(POLICIES)


def test_a_ratio_in_percent() -> None:
    gain = percent(log_ratio([1.26, 1.26], [1.0, 1.0]))
    assert math.isclose(gain.estimate, 26.0) and math.isclose(gain.low, 26.0) and math.isclose(gain.high, 26.0)
    assert percent(log_ratio([1.0, 0.0], [1.0, 1.0])).low == -100.0

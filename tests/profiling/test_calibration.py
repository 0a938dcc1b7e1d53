"""Calibrations: file, lambda* band, design, report."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tileq_profiling.calibration import Calibration, load_calibration
from tileq_profiling.calibration.rate_band import best_single_rate
from tileq_profiling.design import Batch, batches, next_measurements, tile_measurements
from tileq_profiling.fit import fit
from tileq_profiling.fit.bands import content_band
from tileq_profiling.profile import Conditions, Profile
from tileq_profiling.report import html_report, text_report
from tileq_theory.capacity import Limits, capacity
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.workload import Workload

TRUTH = IterationTime(
    launch_s=0.004, weight_floor_s=0.014, tile_s=0.008, tile_tokens=128, token_s=2e-5, pair_s=6e-9, kv_token_s=1.5e-7
)
WORKLOAD = Workload.from_lengths([200, 900, 1500, 3000], [50, 300, 200, 500])
LIMITS = Limits(max_batch_tokens=2048, max_num_seqs=256, kv_tokens=100_000)


def profile_of(chosen: list[Batch], seed: int = 0, noise: float = 0.02) -> Profile:
    n, a, k, m = (np.array([getattr(b, f) for b in chosen]) for f in ("tokens", "pairs", "kv_tokens", "sequences"))
    rng = np.random.default_rng(seed)
    return Profile.of(
        tokens=n,
        pairs=a,
        kv_tokens=k,
        sequences=m,
        prefill_tokens=[b.chunk_tokens for b in chosen],
        seconds=np.asarray(TRUTH(n, a, k, m)) * (1 + noise * rng.standard_normal(n.size)),
        conditions=Conditions(device="made up", model="a <model>", libraries={"engine": "1.0"}, source="synthetic"),
    )


@pytest.fixture(scope="module")
def profile() -> Profile:
    rng = np.random.default_rng(5)
    chunks = [
        Batch(int(c), int(h)) for c, h in zip(rng.integers(1, 2048, 120), rng.integers(0, 4096, 120), strict=True)
    ]
    decodes = [
        Batch(0, 0, int(d), int(s)) for d, s in zip(rng.integers(1, 256, 80), rng.integers(16, 1024, 80), strict=True)
    ]
    return profile_of(chunks + decodes)


@pytest.fixture(scope="module")
def calibration(profile: Profile) -> Calibration:
    return fit(profile, bootstrap=60)


def test_save_and_load_are_inverse(calibration: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    calibration.save(path)
    back = load_calibration(path)
    assert back.time == calibration.time and back.time.error_band == calibration.time.error_band
    assert back.time.provenance == calibration.time.provenance
    assert back.to_dict() == calibration.to_dict()
    np.testing.assert_allclose(back.draws, calibration.draws, rtol=1e-6)


def test_the_plan_command_reads_the_file(
    calibration: Calibration, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tileq plan --calibration FILE` plans with the fitted model and its error band."""
    from tileq.cli.run import run

    path = tmp_path / "c.json"
    calibration.save(path)
    given = ["plan", "--gpu", "a100-sxm-80gb", "--model", "llama-3.1-8b", "--class", "700:70", "--json"]
    assert run([*given, "--calibration", str(path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["iteration_time"]["tile_tokens"] == 128
    assert document["iteration_time"]["tile_s"] == calibration.time.tile_s
    assert document["iteration_time"]["error_band"]["low"] == calibration.time.error_band.low


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("schema_version",), 2, "schema_version"),
        (("iteration_time", "tile_s"), "x", "iteration_time.tile_s"),
        (("iteration_time", "tile_s"), -1.0, "tile_s is -1.0"),
        (("iteration_time", "tile_tokens"), 0, "tile_tokens is 0"),
        (("iteration_time", "error_band", "low"), 0.0, "error band"),
        (("draws",), [[1.0]], "7 coefficients"),
        (("surplus",), 1, "surplus"),
        (("kind",), "tileq profile", "kind"),
    ],
)
def test_a_broken_file_names_the_field(
    calibration: Calibration, tmp_path: Path, path: tuple[str, ...], value: object, words: str
) -> None:
    file = tmp_path / "c.json"
    calibration.save(file)
    document = json.loads(file.read_text())
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file.write_text(json.dumps(document))
    with pytest.raises(InputError) as caught:
        load_calibration(file)
    assert str(file) in str(caught.value) and words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "tokens,seconds\n1,2\n", '{"a": NaN}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.json"
    file.write_text(text)
    with pytest.raises(InputError, match="not a calibration"):
        load_calibration(file)


def test_an_absent_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_calibration(tmp_path / "absent.json")


# ---------------------------------------------------------------- lambda*


def test_the_rate_band_holds_the_truth(calibration: Calibration) -> None:
    """One 95 % interval and one wider band, for one seed: the band must hold, the interval be near."""
    band = calibration.lambda_band(WORKLOAD, LIMITS)
    demand = WORKLOAD.demand(chunk_tokens=LIMITS.max_batch_tokens, counting="least")
    assert band.rate_per_s == pytest.approx(capacity(calibration.time, demand, LIMITS).rate_per_s)
    true = capacity(TRUTH, demand, LIMITS).rate_per_s
    assert band.outer_low_per_s <= band.low_per_s <= band.rate_per_s <= band.high_per_s <= band.outer_high_per_s
    assert band.outer_low_per_s <= true <= band.outer_high_per_s
    assert true == pytest.approx(band.rate_per_s, rel=0.03)
    assert band.high_per_s / band.low_per_s < 1.1


def test_without_draws_only_the_error_band_widens(calibration: Calibration) -> None:
    bare = replace(calibration, draws=np.zeros((0, 7)))
    band = bare.lambda_band(WORKLOAD, LIMITS)
    assert band.low_per_s == band.rate_per_s == band.high_per_s
    error = calibration.time.error_band
    assert band.outer_low_per_s == pytest.approx(band.rate_per_s / error.high)
    assert band.outer_high_per_s == pytest.approx(band.rate_per_s / error.low)


def test_times_scale_the_draws_rates_inversely() -> None:
    demand = WORKLOAD.demand(chunk_tokens=2048)
    one, two = (best_single_rate(t, demand, LIMITS) for t in (TRUTH, TRUTH.scaled(2.0)))
    assert one == pytest.approx(2 * two, rel=1e-12)


# ---------------------------------------------------------------- the band of content


def test_the_band_of_content_keeps_its_confidence() -> None:
    """At most 5 % of bands of 100 uniform ratios hold less than 90 %: more than 38 of 400 has chance 1e-4."""
    rng = np.random.default_rng(0)
    short = 0
    for _ in range(400):
        low, high, confidence = content_band(rng.random(100) + 1.0, 0.9)
        assert confidence >= 0.95
        short += (high - low) < 0.9
    assert short <= 38


# ---------------------------------------------------------------- design


def test_what_was_never_measured_is_measured_first() -> None:
    """A profile of prefills says nothing of k: the next measurement must read KV, and narrow the band much."""
    chunks = [Batch(c, h) for c in (1, 16, 64, 128, 200, 256, 400, 512, 700, 1024, 1500, 2048) for h in (0, 1000, 4000)]
    p = profile_of(chunks)
    c = fit(p, bootstrap=0)
    first = next_measurements(c, p, WORKLOAD, LIMITS, count=1)[0]
    assert first.batch.kv_tokens > 0
    assert first.relative_band_after < first.relative_band_before / 2


def test_designed_points_narrow_the_band_more_than_random_ones(calibration: Calibration, profile: Profile) -> None:
    few = profile.take(np.arange(0, len(profile), 8))
    c = fit(few, bootstrap=0)
    points = next_measurements(c, few, WORKLOAD, LIMITS, count=6)
    assert len(points) == 6
    for a, b in itertools.pairwise(points):
        assert b.relative_band_after <= a.relative_band_after <= a.relative_band_before * (1 + 1e-9)
    rng = np.random.default_rng(0)
    choices = list(batches(most_tokens=2048, kv_tokens=100_000))
    random = next_measurements(
        c, few, WORKLOAD, LIMITS, count=6, candidates=[choices[i] for i in rng.integers(0, len(choices), 6)]
    )
    assert points[-1].relative_band_after <= random[-1].relative_band_after


def test_a_design_for_every_workload_needs_none(calibration: Calibration, profile: Profile) -> None:
    points = next_measurements(calibration, profile, criterion="all", count=3)
    assert points[-1].relative_band_after <= points[0].relative_band_before


def test_a_rate_design_without_workload_is_refused(calibration: Calibration, profile: Profile) -> None:
    with pytest.raises(InputError, match="needs a workload"):
        next_measurements(calibration, profile)


def test_candidates_fit_into_memory() -> None:
    assert all(b.held_tokens <= 5000 for b in batches(kv_tokens=5000))
    assert {b.kind for b in batches()} == {"prefill", "decode", "mixed"}


def test_tile_points_lie_beside_the_steps(calibration: Calibration) -> None:
    """The line and the staircase differ most just above and just below a step."""
    sizes = tile_measurements(calibration, most_tokens=1024, count=6)
    b = calibration.time.tile_tokens
    assert b == 128
    assert all(min(n % b, b - n % b) <= 16 for n in sizes)


# ---------------------------------------------------------------- report


def test_the_text_fits_80_columns_and_says_all(calibration: Calibration) -> None:
    band = calibration.lambda_band(WORKLOAD, LIMITS)
    text = text_report(replace(calibration, warnings=("a warning " * 12,)), band)
    assert max(map(len, text.splitlines())) <= 80
    for words in ("Tile: 128 tokens", "lambda* =", "prefill", "decode", "Warning", "Error band", "KV token read"):
        assert words in text


def test_the_page_is_self_contained_and_deterministic(calibration: Calibration, profile: Profile) -> None:
    page = html_report(calibration, profile)
    assert page == html_report(calibration, profile)
    assert page.count("<svg") == 3 and "a &lt;model&gt;" in page and "a <model>" not in page
    for outside in ("src=", 'href="http', "@import", "url(http"):
        assert outside not in page

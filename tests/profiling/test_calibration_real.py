"""Fits to published measurements: the numbers that the specification asks for."""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tileq_profiling.fit import find_staircase, fit, recover_chunk_times
from tileq_profiling.fit.chunk_times import ttft_of
from tileq_profiling.profile import Profile
from tileq_theory.calibrations import calibration_names, named_calibration
from tileq_theory.errors import InputError

TOOLS = Path(__file__).resolve().parents[2] / "tools" / "calibrations"
CHUNKS = [64, 128, 256, 384, 512, 768, 1024]
# SLAI Fig. 5a, also in theory.md section 2
TTFT_S = [0.72432, 0.38626, 0.23884, 0.24389, 0.21216, 0.20489, 0.20152]
MEAN_S = [0.022717, 0.024070, 0.028817, 0.037796, 0.046512, 0.057083, 0.074693]


@pytest.fixture(scope="module")
def tools() -> object:
    """Return the modules of tools/calibrations."""
    sys.path.insert(0, str(TOOLS))
    try:
        import sources
        import table
    finally:
        sys.path.remove(str(TOOLS))
        for name in ("sources", "table"):  # another tool has modules of the same bare names
            sys.modules.pop(name, None)
    return {"SOURCES": sources.SOURCES, "calibrate": table.calibrate}


# ---------------------------------------------------------------- SLAI Fig. 5a


def test_chunk_times_are_recovered_exactly_from_exact_means() -> None:
    """Any times of the chunks, remainders and decode step come back from the two figures of each run."""
    rng = np.random.default_rng(0)
    sizes = {1, *CHUNKS}
    truth = {n: float(rng.uniform(0.01, 0.1)) for n in sizes}
    ttft, mean = [], []
    for s in CHUNKS:
        parts = [s] * (2048 // s) + ([2048 % s] if 2048 % s else [])
        total = sum(truth[p] for p in parts)
        ttft.append(total)
        mean.append((total + 3 * truth[1]) / (len(parts) + 3))
    got = recover_chunk_times(
        prompt_tokens=2048, chunk_tokens=CHUNKS, ttft_s=ttft, mean_iteration_s=mean, decode_steps=3
    )
    assert got.residual < 1e-6 and got.interpolated == ()
    for n, t in zip(got.tokens.tolist(), got.seconds.tolist(), strict=True):
        assert t == pytest.approx(truth[n], rel=1e-5)


def test_a_remainder_of_one_run_only_is_split_and_named() -> None:
    """2048 = 20 * 100 + 48: T(100) and T(48) are told only together; on a straight line the split is right."""
    chunks = [64, 128, 256, 100]

    def line(n: int) -> float:
        return 0.01 + 1e-4 * n

    parts = [[s] * (2048 // s) + ([2048 % s] if 2048 % s else []) for s in chunks]
    ttft = [sum(map(line, p)) for p in parts]
    mean = [(t + line(1)) / (len(p) + 1) for t, p in zip(ttft, parts, strict=True)]
    got = recover_chunk_times(prompt_tokens=2048, chunk_tokens=chunks, ttft_s=ttft, mean_iteration_s=mean)
    assert got.interpolated == (48, 100)
    np.testing.assert_allclose(got.seconds, [line(n) for n in got.tokens.tolist()], rtol=1e-4)


def test_published_means_of_slai_are_fitted() -> None:
    times = recover_chunk_times(prompt_tokens=2048, chunk_tokens=CHUNKS, ttft_s=TTFT_S, mean_iteration_s=MEAN_S)
    assert times.residual < 0.01  # two printed figures a run, one decode step: they agree within 1 %
    p = times.profile()
    t = fit(p, bootstrap=0).time
    error = np.asarray(t(*p.compositions.T)) / p.seconds - 1
    by_size = dict(zip(p.tokens.tolist(), np.abs(error).tolist(), strict=True))
    assert max(by_size[n] for n in CHUNKS) <= 0.07
    assert max(by_size[n] for n in CHUNKS if n > 512) <= 0.03
    for s, measured in zip(CHUNKS, TTFT_S, strict=True):
        assert ttft_of(t, 2048, s) == pytest.approx(measured, rel=0.05)


def test_the_printed_figures_are_those_of_the_data(data: Path) -> None:
    with (data / "slai/plot1_results.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [int(r["chunk"]) for r in rows] == CHUNKS
    np.testing.assert_allclose([float(r["ttft_ms"]) for r in rows], 1e3 * np.array(TTFT_S), rtol=1e-4)
    np.testing.assert_allclose([float(r["batch_ms"]) for r in rows], 1e3 * np.array(MEAN_S), rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ttft_s": TTFT_S[:-1]}, "expected as many"),
        ({"ttft_s": [float("nan"), *TTFT_S[1:]]}, "not a finite number"),
        ({"ttft_s": [10 * t for t in TTFT_S]}, "leave no time"),
    ],
)
def test_figures_that_do_not_belong_together_are_refused(changes: dict[str, list[float]], words: str) -> None:
    given = {"chunk_tokens": CHUNKS, "ttft_s": TTFT_S, "mean_iteration_s": MEAN_S, **changes}
    with pytest.raises(InputError, match=words):
        recover_chunk_times(prompt_tokens=2048, **given)  # type: ignore[arg-type]


# ---------------------------------------------------------------- whole forward passes


def test_qwen3_4b_on_a100(data: Path, tools: dict) -> None:  # type: ignore[type-arg]
    """Held-out median under 8 %; a band made on half of the batches holds 90 % of the other half, in each phase."""
    profile = tools["SOURCES"]["a100-sxm-80gb/qwen3-4b"].profile(data)
    c = fit(profile, bootstrap=0)
    assert c.median_error < 0.08
    assert c.tile.answer == "none"  # powers of two show none
    rng = np.random.default_rng(0)
    half = rng.permutation(len(profile)) < len(profile) // 2
    made, later = fit(profile.take(half), bootstrap=0), profile.take(~half)
    ratio = later.seconds / np.asarray(made.time(*later.compositions.T))
    band = made.time.error_band
    inside = (ratio >= band.low) & (ratio <= band.high)
    assert inside.mean() >= 0.9
    for phase in ("prefill", "decode"):
        assert inside[later.phase == phase].mean() >= 0.9


# ---------------------------------------------------------------- staircases


def _gemm(data: Path, system: str, version: str, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow.parquet as pq

    file = data / "aiconfigurator/data" / system / "gemm/vllm" / version / "gemm_perf.parquet"
    rows = pq.read_table(file, filters=[("n", "==", shape[0]), ("k", "==", shape[1])]).to_pylist()
    table: dict[int, list[float]] = defaultdict(list)
    for r in rows:
        if r["gemm_dtype"] == "bfloat16":
            table[r["m"]].append(1e-3 * r["latency"])
    m = np.array(sorted(table))
    return m, np.array([np.median(table[x]) for x in m.tolist()])


def test_the_a100_staircase_is_found_where_it_is(data: Path) -> None:
    """4096 x 4096: 54 us at 192 to 384, 104 us at 768, 204 us at 1024 (data/README)."""
    stairs = find_staircase(*_gemm(data, "a100_sxm", "0.14.0", (4096, 4096)))
    steps = {(s.after_tokens, s.before_tokens) for s in stairs.steps}
    assert {(160.0, 192.0), (384.0, 512.0), (768.0, 1024.0)} <= steps


def test_the_width_of_a_wave_on_a100(data: Path) -> None:
    """12288 outputs are 96 blocks of 128 along n: one row of blocks of 256 tokens fills a wave of 108 processors."""
    stairs = find_staircase(*_gemm(data, "a100_sxm", "0.14.0", (12288, 4096)))
    assert (256.0, 384.0) in {(s.after_tokens, s.before_tokens) for s in stairs.steps}
    assert stairs.verdict.answer == "tile"
    assert 256 <= stairs.time.tile_tokens <= 288  # 256 by rows of blocks, 288 = 256 * 108/96 by waves
    assert stairs.time.tile_s + 256 * stairs.time.token_s == pytest.approx(1.0e-4, rel=0.15)


def test_h100_steps_lie_at_full_rows(data: Path) -> None:
    """Sizes m and m + 1 were timed: the steps that last are those just above multiples of 256."""
    stairs = find_staircase(*_gemm(data, "h100_sxm", "0.19.0", (12288, 4096)))
    close = [s for s in stairs.steps if s.before_tokens == s.after_tokens + 1]
    assert close
    assert all(s.after_tokens % 256 == 0 for s in close)


def test_rtx_4090_layers_step_at_256(data: Path) -> None:
    """Dense layers of Llama-3.1-8B rise by 10 ms right after 256, 512, 768, ... tokens, by half of it in between."""
    file = data / "llmservingsim/profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1/dense.csv"
    layer: dict[int, float] = defaultdict(float)
    with file.open(newline="") as lines:
        for r in csv.DictReader(lines):
            if r["layer"] not in ("embedding", "final_layernorm"):
                layer[int(r["tokens"])] += 32e-6 * float(r["time_us"]) * (2 if r["layer"] == "layernorm" else 1)
    stairs = find_staircase(list(layer), list(layer.values()), rise=0.05)
    assert stairs.verdict.answer == "tile" and stairs.time.tile_tokens == 256
    after = {s.after_tokens for s in stairs.steps}
    assert {256.0 * i for i in range(1, 8)} <= after


def test_a_straight_line_has_no_staircase() -> None:
    n = np.arange(16, 2049, 16)
    rng = np.random.default_rng(0)
    stairs = find_staircase(n, (2e-5 + 1e-7 * n) * (1 + 0.01 * rng.standard_normal(n.size)))
    assert stairs.steps == () and stairs.width_tokens is None and stairs.verdict.answer == "none"


# ---------------------------------------------------------------- the shipped calibrations


@pytest.mark.parametrize(
    "name",
    ["rtx-6000-ada/mistral-7b", "a100-sxm-80gb/qwen3-4b", "a100-sxm-80gb/yi-34b-tp2", "h100-sxm/llama-2-70b-tp2"],
)
def test_shipped_figures_are_recomputed(data: Path, tools: dict, name: str) -> None:  # type: ignore[type-arg]
    document, shipped = tools["calibrate"](name, data), named_calibration(name)
    for key, value in document["iteration_time"].items():
        # solvers of other versions stop elsewhere in the last digits
        assert getattr(shipped.time, key) == pytest.approx(value, rel=1e-2, abs=1e-12), key
    assert shipped.median_error == pytest.approx(document["held_out"][0]["median_abs"], rel=0.05)
    assert shipped.tile_answer == document["tile"]["answer"]


@pytest.mark.campaign
def test_all_shipped_figures_are_recomputed(data: Path, tools: dict) -> None:  # type: ignore[type-arg]
    for name in tools["SOURCES"]:
        document, shipped = tools["calibrate"](name, data), named_calibration(name)
        for key, value in document["iteration_time"].items():
            assert getattr(shipped.time, key) == pytest.approx(value, rel=1e-2, abs=1e-12), (name, key)


def test_every_source_ships_and_nothing_else(tools: dict) -> None:  # type: ignore[type-arg]
    assert set(calibration_names()) == set(tools["SOURCES"])


def test_the_measured_figures_of_a_file_are_its_data(data: Path) -> None:
    file = data / "llm_exec_time_predictor/benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json"
    rows = json.loads(file.read_text())["results"]
    assert named_calibration("a100-sxm-80gb/qwen3-4b").held_out[0].points == 2 * len(rows)


def test_profiles_are_whole(data: Path, tools: dict) -> None:  # type: ignore[type-arg]
    for name in ("a100-sxm-80gb/qwen3-8b", "h100-sxm/llama-2-70b-tp2"):
        profile: Profile = tools["SOURCES"][name].profile(data)
        assert {"prefill", "decode"} <= set(profile.phase.tolist())

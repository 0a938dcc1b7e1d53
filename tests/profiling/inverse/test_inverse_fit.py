"""Iteration times from latencies: truths lie in their intervals, other rates are predicted, the rest is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine.config import EngineConfig
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.run import PS_PER_S
from tileq_engine.simulator import RawRun, simulate
from tileq_profiling.calibration import load_calibration
from tileq_profiling.inverse import InverseFit, fit_latencies
from tileq_profiling.inverse.engine import EngineGiven, engine_of
from tileq_profiling.replay import replay
from tileq_profiling.steps import MeasuredRun, read_run
from tileq_theory.errors import InputError
from tileq_theory.hardware import load_gpu, load_model, roofline
from tileq_theory.iteration_time import IterationTime

CONFIG = EngineConfig(token_budget=2048, max_num_seqs=128, kv_tokens=60_000)
ENGINE = {"token_budget": 2048, "max_num_seqs": 128}
FITTED = ("launch_s", "weight_floor_s", "token_s", "pair_s", "kv_token_s", "sequence_s")
# GPU, model, two rates, launch: an idle and a busy run of each
TRUTHS = (
    ("rtx-4090", "llama-3.1-8b", (0.5, 2.0), 0.003),
    ("a100-sxm-80gb", "llama-3.1-8b", (1.0, 3.0), 0.004),
    ("h100-sxm", "qwen3-8b", (2.0, 8.0), 0.003),
)


def truth(gpu: str, model: str, launch_s: float, seed: int = 0) -> IterationTime:
    """A roofline with every part off by a factor of its own."""
    t = roofline(load_gpu(gpu), load_model(model), tile_tokens=None, corrected=True)
    factors = np.random.default_rng(seed).lognormal(0, 0.2, 5)
    parts = ("weight_floor_s", "token_s", "pair_s", "kv_token_s", "sequence_s")
    return t.with_(launch_s=launch_s, **{n: f * getattr(t, n) for n, f in zip(parts, factors, strict=True)})


def asked(rate: float, count: int, seed: int) -> Requests:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rate, count))
    return Requests.from_arrays(
        arrival_s=(arrival - arrival[0]).round(9),
        prompt_tokens=np.clip(rng.lognormal(6.6, 1.0, count), 8, 8000).astype(int),
        output_tokens=np.clip(rng.lognormal(5.0, 1.0, count), 1, 1500).astype(int),
    )


def recorded(raw: RawRun, noise: float, seed: int, name: str = "a run") -> MeasuredRun:
    """Return what a load generator writes of a run, each latency with noise of its own."""
    rng, output = np.random.default_rng([seed, 1]), raw.requests.output_tokens
    count = output.size
    first, end = ((c - raw.arrival_ps) / PS_PER_S for c in (raw.first_token_ps, raw.finish_ps))
    ttft = first * rng.lognormal(0, noise, count)
    steps = np.where(output > 1, output - 1, np.nan)
    tpot = (end - first) / steps * rng.lognormal(0, noise / 2, count)
    return MeasuredRun(
        name,
        "test",
        raw.requests.prompt_tokens,
        output,
        raw.arrival_ps / PS_PER_S,
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=ttft + np.nan_to_num(tpot * steps),
        kv_capacity_tokens=float(CONFIG.kv_tokens or 0),
    )


def run_of(time: IterationTime, rate: float, *, count: int = 300, seed: int = 7, noise: float = 0.03) -> MeasuredRun:
    raw = simulate(asked(rate, count, seed), policy("vllm_v1"), time, CONFIG)
    return recorded(raw, noise, seed, f"rate {rate:g}")


def outside(fit: InverseFit, time: IterationTime) -> list[str]:
    """Return the coefficients whose truth lies outside of its interval."""
    slack = 1e-9
    return [
        name
        for name in FITTED
        if not (1 - slack) * fit.calibration.intervals[name][0]
        <= getattr(time, name)
        <= (1 + slack) * fit.calibration.intervals[name][1]
    ]


@pytest.fixture(scope="module")
def fits() -> list[tuple[IterationTime, InverseFit, tuple[float, float]]]:
    found = []
    for at, (gpu, model, rates, launch_s) in enumerate(TRUTHS):
        time = truth(gpu, model, launch_s, seed=at)
        runs = [run_of(time, rate, seed=7 + i) for i, rate in enumerate(rates)]
        found.append((time, fit_latencies(runs, gpu=load_gpu(gpu), model=load_model(model), **ENGINE), rates))
    return found


def test_truths_lie_in_their_intervals(fits: list[Any]) -> None:
    """18 intervals of nominally 95 %: four or more miss with probability 1 % were each as good as it says."""
    missed = [name for time, fit, _ in fits for name in outside(fit, time)]
    assert len(missed) <= 3, missed


def test_what_matters_is_told_closely(fits: list[Any]) -> None:
    """The floor of a decode step is told by every TPOT: within 5 %; time per token and per KV token within 15 %."""
    for time, fit, _ in fits:
        floor = time.launch_s + time.weight_floor_s
        assert fit.time.launch_s + fit.time.weight_floor_s == pytest.approx(floor, rel=0.05)
        assert fit.time.token_s == pytest.approx(time.token_s, rel=0.15)
        assert fit.time.kv_token_s == pytest.approx(time.kv_token_s, rel=0.15)
        assert not {"token_s", "kv_token_s"} & set(fit.fixed)


def test_another_rate_is_predicted_within_the_stated_error(fits: list[Any]) -> None:
    for time, fit, rates in fits:
        stated = {e.regime: e for e in fit.calibration.held_out}
        later = run_of(time, 0.5 * sum(rates), seed=99, noise=0.0)
        c = replay(later, fit.time, config=CONFIG)
        assert abs(c.error("ttft_s mean")) < 0.06 and abs(c.error("e2e_s mean")) < 0.02
        for name in ("ttft_s", "tpot_s"):
            assert c.request_error(name) < 1.5 * stated[name].median_abs
        band = fit.time.error_band
        measured, predicted = c.per_request["tpot_s"]
        ratio = (measured / predicted)[np.isfinite(measured)]
        assert np.mean((ratio >= band.low) & (ratio <= band.high)) > 0.85


def test_the_answer_says_what_is_determined(fits: list[Any]) -> None:
    for _, fit, _ in fits:
        errors = [c.error for c in fit.combinations]
        assert errors == sorted(errors) and fit.combinations[0].determined
        told = sum(c.determined for c in fit.combinations)
        # what is fixed is at least what the combinations lack
        assert len(fit.fixed) >= len(fit.combinations) - told
        assert all(any(reason in text for text in fit.calibration.warnings) for reason in fit.fixed.values())
        assert max(map(len, fit.text().splitlines())) <= 80
        assert "Scheduler vllm_v1".lower() in fit.text().lower()


def test_the_calibration_goes_to_a_file_and_back(fits: list[Any], tmp_path: Path) -> None:
    made = fits[0][1].calibration
    made.save(tmp_path / "c.json")
    again = load_calibration(tmp_path / "c.json")
    assert again.scope == "latencies" and again.time == made.time and again.draws.shape == made.draws.shape


@pytest.mark.campaign
@pytest.mark.parametrize("known", [False, True])
def test_intervals_hold_over_many_truths(known: bool) -> None:
    """At 95 % nominal, 18 fits of six coefficients: fewer than 93 of 108 inside with probability below 1e-4."""
    inside = 0
    for seed in range(6):
        for gpu, model, rates, launch_s in TRUTHS:
            time = truth(gpu, model, launch_s, seed=100 + seed)
            runs = [run_of(time, rates[seed % 2], seed=seed)]
            named: dict[str, Any] = {"gpu": load_gpu(gpu), "model": load_model(model)} if known else {}
            inside += len(FITTED) - len(outside(fit_latencies(runs, **ENGINE, **named), time))
    assert inside >= 93, inside


# ---------------------------------------------------------------- figures only


def figures(run: MeasuredRun, rate: float) -> MeasuredRun:
    """Return what remains of a run when its tool keeps totals alone."""
    totals = {
        "completed": float(run.count),
        "prompt_tokens": float(run.prompt_tokens.sum()),
        "output_tokens": float(run.output_tokens.sum()),
        "request_rate_per_s": rate,
        "request_throughput_per_s": rate,
    }
    for name in ("ttft_s", "tpot_s"):
        values = getattr(run, name)
        totals |= {f"mean_{name}": float(np.nanmean(values)), f"median_{name}": float(np.nanmedian(values))}
        totals[f"p90_{name}"] = float(np.nanpercentile(values, 90))
    return MeasuredRun(f"{rate:g}/s", "vllm-bench", totals=totals, kv_capacity_tokens=60_000.0)


def test_a_sweep_of_totals_tells_the_main_coefficients() -> None:
    """Fixed lengths, as benchmarks of random prompts have, at three rates; nothing but means and quantiles is known."""
    gpu, model = load_gpu("a100-sxm-80gb"), load_model("llama-3.1-8b")
    time = truth("a100-sxm-80gb", "llama-3.1-8b", 0.004, seed=3)
    runs = []
    for at, rate in enumerate((0.5, 2.0, 4.0)):
        one = asked(rate, 200, at).with_(prompt_tokens=np.full(200, 1024), output_tokens=np.full(200, 128))
        runs.append(figures(recorded(simulate(one, policy("vllm_v1"), time, CONFIG), 0.03, at), rate))
    fit = fit_latencies(runs, gpu=gpu, model=model, **ENGINE)
    floor = time.launch_s + time.weight_floor_s
    assert fit.time.launch_s + fit.time.weight_floor_s == pytest.approx(floor, rel=0.08)
    linear = time.token_s * 1024 + time.pair_s * 1024 * 1025 / 2
    # one prompt length: the time of its prefill is told, not what it is made of
    found = fit.time.token_s * 1024 + fit.time.pair_s * 1024 * 1025 / 2
    assert found + fit.time.launch_s == pytest.approx(linear + time.launch_s, rel=0.1)
    assert {r.region for r in fit.calibration.regions} == {"0.5/s", "2/s", "4/s"}
    assert any("every request has the mean 1024 + 128" in text for text in fit.assumed)
    assert any("arrivals are not in the file" in text for text in fit.assumed)


# ---------------------------------------------------------------- refusals and assumptions


def test_what_cannot_be_told_is_refused() -> None:
    time = truth("rtx-4090", "llama-3.1-8b", 0.003)
    run = run_of(time, 1.0, count=60)
    with pytest.raises(InputError, match="no measured run"):
        fit_latencies([])
    with pytest.raises(InputError, match="tells no latency"):
        fit_latencies([replace(run, ttft_s=None, tpot_s=None, e2e_s=None)], **ENGINE)
    with pytest.raises(InputError, match="does not tell when its requests arrived"):
        fit_latencies([replace(run, arrival_s=None)], **ENGINE)
    with pytest.raises(InputError, match="2 latencies in all"):
        fit_latencies([replace(run_of(time, 1.0, count=1), arrival_s=np.zeros(1))], **ENGINE)
    with pytest.raises(InputError, match="neither its requests nor their number"):
        fit_latencies([MeasuredRun("a summary", "llmperf-summary", totals={"mean_ttft_s": 0.1})], rate=1.0)


def test_a_time_that_no_latency_depends_on_is_asked_for() -> None:
    """One-token prompts never leave the weight floor: without a datasheet no larger batch can be timed."""
    time = IterationTime(launch_s=0.002, weight_floor_s=0.02, token_s=5e-5, kv_token_s=1e-7)
    one = Requests.from_arrays(arrival_s=np.arange(40) * 5.0, prompt_tokens=np.full(40, 8), output_tokens=50)
    run = recorded(simulate(one, policy("vllm_v1"), time, CONFIG), 0.02, 0)
    with pytest.raises(InputError, match=r"token_s: .*give the GPU and the model"):
        fit_latencies([run], **ENGINE)
    fit = fit_latencies([run], gpu=load_gpu("rtx-4090"), model=load_model("llama-3.1-8b"), **ENGINE)
    assert "roofline of the device's datasheet" in fit.fixed["token_s"]
    assert fit.time.launch_s + fit.time.weight_floor_s == pytest.approx(0.022, rel=0.02)


def test_an_engine_that_nobody_names_is_assumed_and_said() -> None:
    run = MeasuredRun("a run", "test", totals={"max_num_seqs": 4.0})
    config, assumed = engine_of(run, EngineGiven())
    assert (config.token_budget, config.max_num_seqs, config.kv_tokens) == (2048, 4, None)
    assert any("token_budget 2048 is assumed" in text for text in assumed)
    assert any("hold everything" in text for text in assumed) and not any("max_num_seqs" in text for text in assumed)
    large, _ = engine_of(run, EngineGiven(gpu=load_gpu("h100-sxm"), model=load_model("llama-3.1-8b")))
    assert large.token_budget == 8192 and large.kv_tokens is not None
    with pytest.raises(InputError, match="token_budget is 0"):
        engine_of(run, EngineGiven(token_budget=0))


def test_a_scheduler_that_is_not_the_engines_is_noticed() -> None:
    """Latencies of milliseconds read as seconds, say, or of another engine: the fit says that it misses them."""
    run = run_of(truth("rtx-4090", "llama-3.1-8b", 0.003), 2.0, count=120)
    rng = np.random.default_rng(0)
    assert run.tpot_s is not None
    odd = replace(run, tpot_s=run.tpot_s * rng.lognormal(0, 1.5, run.count))
    fit = fit_latencies([odd], **ENGINE)
    assert any("the fit misses tpot_s" in text for text in fit.calibration.warnings)


@pytest.mark.parametrize(
    ("factor", "says"),
    [
        (
            1e3,
            ("outside of the engine's iterations", "were milliseconds taken for seconds"),
        ),  # the overhead takes it up
        (1e-3, ("times less than what the fit says", "were seconds taken for milliseconds?")),
    ],
)
def test_one_latency_in_another_unit_is_questioned(factor: float, says: tuple[str, str]) -> None:
    """TTFT a thousandfold beside times per token as they are: never without the question."""
    run = run_of(truth("rtx-4090", "llama-3.1-8b", 0.003), 2.0, count=120)
    assert run.ttft_s is not None
    asked_of = {"gpu": load_gpu("rtx-4090"), "model": load_model("llama-3.1-8b"), **ENGINE}
    fit = fit_latencies([replace(run, ttft_s=factor * run.ttft_s)], **asked_of)
    (asked,) = (text for text in fit.calibration.warnings if "taken for" in text)
    assert all(words in asked for words in says), asked


# ---------------------------------------------------------------- a measured run


def test_the_latencies_of_a_measured_run(data: Path) -> None:
    """RTX 4090, Llama-3.1-8B, vLLM 0.19 in overload: held-out requests within 5 %, the floor near the kernels' own."""
    run = read_run(data / "llmservingsim/bench/examples/RTX4090/Llama-3.1-8B/vllm")
    fit = fit_latencies([run], gpu=load_gpu("rtx-4090"), model=load_model("llama-3.1-8b"))
    errors = {e.regime: e.median_abs for e in fit.calibration.held_out}
    assert errors["ttft_s"] < 0.05 and errors["tpot_s"] < 0.05
    # 16.1 GB of weights at 1008 GB/s take 16 ms; a decode of this engine cannot take less than nine tenths of it
    assert 0.0144 < fit.time.launch_s + fit.time.weight_floor_s < 0.020
    assert {"pair_s", "launch_s"} <= set(fit.fixed)  # an overloaded run tells neither
    c = replay(run, fit.time)
    assert abs(c.error("throughput_per_s")) < 0.05 and abs(c.error("tpot_s p50")) < 0.05

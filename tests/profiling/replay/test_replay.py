"""Replaying measured runs: exact on the simulator's own runs, within 10 % on a measured one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine.config import EngineConfig
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.run import PS_PER_S, Run
from tileq_engine.simulator import simulate
from tileq_profiling.fit import fit
from tileq_profiling.fit.kv_price import kv_prices
from tileq_profiling.profile import Conditions, Profile
from tileq_profiling.replay import focused_fit, replay, settings_of, vllm_policy
from tileq_profiling.replay.focus import visit_weights
from tileq_profiling.steps import MeasuredRun, RunSeries, read_profile, read_run
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.005, weight_floor_s=0.01, token_s=5e-5, pair_s=1e-9, kv_token_s=1e-7)
CONFIG = EngineConfig(token_budget=256, max_num_seqs=16, kv_tokens=8192, sample_limit=1 << 18)


def lengths(count: int = 60, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "arrival_s": np.sort(rng.uniform(0, 10, count)).round(6),
        "prompt_tokens": rng.integers(20, 900, count),
        "output_tokens": rng.integers(1, 200, count),
    }


def recorded(time: IterationTime = TIME, *, series: bool = True, together: bool = False) -> MeasuredRun:
    """Return a run that the simulator made, as if an engine had recorded it."""
    given = lengths()
    if together:
        given["arrival_s"] = np.zeros(len(given["arrival_s"]))
    given["arrival_s"] = given["arrival_s"] - given["arrival_s"][0]
    made = Run.of(simulate(Requests.from_arrays(**given), policy("vllm_v1"), time, CONFIG))
    table, s = made.requests, made.samples
    first, finish = ((table[name] - table["arrival_ps"]) / PS_PER_S for name in ("first_token_ps", "finish_ps"))
    steps = np.where(table["output_tokens"] > 1, table["output_tokens"] - 1, np.nan)
    t, blank = s["start_ps"] / PS_PER_S, np.full(s["start_ps"].size, np.nan)
    usage = s["kv_blocks_used"] / made.info.kv_blocks_total
    told = RunSeries("", t, s["running"].astype(float), s["waiting"].astype(float), usage, blank, blank)
    return MeasuredRun(
        source="a run",
        format="test",
        prompt_tokens=table["prompt_tokens"],
        output_tokens=table["output_tokens"],
        arrival_s=table["arrival_ps"] / PS_PER_S,
        ttft_s=first,
        tpot_s=(finish - first) / steps,
        e2e_s=finish,
        series=(told,) if series else (),
    )


def test_the_simulators_own_run_comes_back_exactly() -> None:
    c = replay(recorded(), TIME, config=CONFIG)
    assert c.run.finished == 60 and c.warnings == ()
    for name, quantity in c.quantities.items():
        if "over time" not in name:
            assert quantity.error == pytest.approx(0, abs=1e-9), name
    assert {"throughput_per_s", "ttft_s mean", "tpot_s p50", "e2e_s p99", "running over time"} <= set(c.quantities)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert c.request_error(name) == pytest.approx(0, abs=1e-9)
    for path in c.paths.values():
        assert path.distance == 0
    document = c.to_dict()
    assert document["path_distance"] == {"running": 0.0, "waiting": 0.0, "kv_usage": 0.0}
    assert max(map(len, c.text().splitlines())) <= 80


def test_twice_the_time_is_twice_every_latency() -> None:
    """All there at the start: nothing but iterations passes time, so every figure doubles, and the rate halves."""
    twice = TIME.with_(
        **{n: 2 * getattr(TIME, n) for n in ("launch_s", "weight_floor_s", "token_s", "pair_s", "kv_token_s")}
    )
    c = replay(recorded(together=True), twice, config=CONFIG)
    for name in ("ttft_s mean", "ttft_s p99", "tpot_s p50", "e2e_s mean", "duration_s"):
        assert c.error(name) == pytest.approx(1.0, rel=1e-6)
    assert c.error("throughput_per_s") == pytest.approx(-0.5, rel=1e-6)
    for name in ("running over time", "waiting over time", "kv_usage over time"):
        same = replay(recorded(together=True), TIME, config=CONFIG)
        assert c.quantities[name].predicted == pytest.approx(same.quantities[name].predicted, rel=1e-6)


def test_what_cannot_be_replayed_is_refused() -> None:
    run = recorded()
    with pytest.raises(InputError, match="no arrivals"):
        replay(replace(run, arrival_s=None), TIME, config=CONFIG)
    with pytest.raises(InputError, match="no arrivals"):
        replay(MeasuredRun("a log", "log", series=run.series), TIME, config=CONFIG)
    with pytest.raises(InputError, match="2 engines"):
        replay(replace(run, series=run.series * 2), TIME, config=CONFIG)
    with pytest.raises(
        InputError, match="does not state its engine's token_budget, max_num_seqs, kv_tokens; give them"
    ):
        replay(run, TIME)
    c = replay(run, TIME, config=CONFIG)
    with pytest.raises(InputError, match="did you mean ttft_s mean"):
        c.error("ttft_s men")
    with pytest.raises(InputError, match="not compared"):
        c.request_error("queue")


def test_requests_that_the_replay_rejects_are_told() -> None:
    c = replay(recorded(), TIME, config=CONFIG.with_(max_model_tokens=600))
    assert c.run.rejected > 0
    assert any("longer than max_model_tokens" in text for text in c.warnings)
    assert "Warning: the replay finished" in c.text() and max(map(len, c.text().splitlines())) <= 80


def test_settings_and_scheduler_are_those_that_the_run_states() -> None:
    notes = ("max_num_seqs 32", "max_num_batched_tokens 512", "max_model_len 4096")
    run = replace(recorded(), kv_capacity_tokens=5000.0, conditions=Conditions(notes=notes))
    config = settings_of(run)
    assert (config.max_num_seqs, config.token_budget, config.max_model_tokens, config.kv_tokens) == (
        32,
        512,
        4096,
        5000,
    )
    own_budget = settings_of(run, token_budget=64)
    assert (own_budget.token_budget, own_budget.max_num_seqs) == (64, 32)
    with pytest.raises(InputError, match="max_num_seqs is 0"):
        settings_of(run, max_num_seqs=0)
    for version, own in (("0.19.0", True), ("0.20.1", True), ("1.0", True), ("0.18.2", False), ("0.9.1", False)):
        told = replace(run, conditions=Conditions(libraries={"vllm": version}))
        assert (vllm_policy(told).admission == "admit_sequence") is own, version
    assert vllm_policy(run).admission == "admit_chunk"


def test_a_request_waits_until_all_that_it_holds_fits() -> None:
    """A resident of 30 of 40 blocks; a prompt of 20: the first chunk of 4 fits, the whole does not."""
    asked = Requests.from_arrays(arrival_s=[0.0, 0.5], prompt_tokens=[460, 320], output_tokens=[20, 5])
    config = EngineConfig(token_budget=64, max_num_seqs=8, kv_tokens=640)
    time = IterationTime.constant(0.1)
    chunkwise = Run.of(simulate(asked, policy("vllm_v1"), time, config))
    whole = Run.of(simulate(asked, policy("vllm_v1", admission="sequence"), time, config))
    assert chunkwise.requests["admit_ps"][1] < chunkwise.requests["finish_ps"][0]
    assert whole.requests["admit_ps"][1] >= whole.requests["finish_ps"][0]
    assert whole.requests["preemptions"].sum() == 0 < chunkwise.requests["preemptions"].sum()


def two_prices(seed: int = 0) -> Profile:
    """Return batches in which a KV token costs 1e-7 s in decodes alone and 4e-7 s beside a chunk, 1 % noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for m in (1, 2, 4, 8, 16):
        for kv in (256, 512, 1024, 2048, 4096, 8192):
            rows.append((m, 0.0, kv, m, 0, 1e-7))
            for chunk in (16, 64, 128, 250, 400):
                rows.append((m + chunk, chunk * (chunk + 1) / 2, kv, m + 1, chunk, 4e-7))
    n, pairs, kv, m, chunk, price = np.array(rows, float).T
    seconds = (0.010 + 5e-5 * n + price * kv) * rng.normal(1, 0.01, n.size)
    return Profile.of(tokens=n, pairs=pairs, kv_tokens=kv, sequences=m, seconds=seconds, prefill_tokens=chunk)


def decoding() -> MeasuredRun:
    """Return a run that does nothing but decode: short prompts, long outputs."""
    count = 16
    return MeasuredRun(
        "a run", "test", np.full(count, 300), np.full(count, 200), np.zeros(count), kv_capacity_tokens=8192.0
    )


def test_a_focused_fit_finds_the_price_of_the_batches_that_the_run_forms() -> None:
    profile, run = two_prices(), decoding()
    plain = fit(profile, bootstrap=0)
    focused = focused_fit(profile, run, config=CONFIG, bootstrap=0)
    assert plain.time.kv_token_s > 1.3e-7  # phases count the same: between the two prices
    assert focused.time.kv_token_s == pytest.approx(1e-7, rel=0.15)
    assert any("requests of a run form" in text for text in focused.warnings)
    # the plain fit says that it cannot hold both, and how far they are apart (1e-7 and 4e-7)
    (told,) = [text for text in plain.warnings if "beside prefill" in text]
    prices = kv_prices(profile, plain.time)
    assert prices["decode"] == pytest.approx(1e-7, rel=0.2) and prices["mixed"] == pytest.approx(4e-7, rel=0.2)
    assert "focused_fit" in told and not any("beside prefill" in text for text in focused.warnings)


def test_weights_lie_where_the_time_is_spent() -> None:
    profile, run = two_prices(), decoding()
    weights = visit_weights(profile, replay(run, TIME, config=CONFIG).run)
    assert weights.mean() == pytest.approx(1) and weights.min() >= 0.2
    weights = weights - 0.2  # what every batch keeps
    decode = profile.phase == "decode"
    assert weights[decode].sum() > 0.8 * weights.sum()
    full = decode & (profile.sequences >= 8) & (profile.kv_tokens >= 2048)
    assert weights[full].sum() > 0.7 * weights.sum()


def test_a_profile_without_its_split_is_refused() -> None:
    p = two_prices()
    blind = Profile.of(tokens=p.tokens, seconds=p.seconds, kv_tokens=p.kv_tokens)
    with pytest.raises(InputError, match="prefill tokens of each batch"):
        focused_fit(blind, decoding(), config=CONFIG)


def test_a_measured_run_in_overload_is_predicted_from_the_kernel_profile_alone(data: Path) -> None:
    """RTX 4090, Llama-3.1-8B, vLLM 0.19: nothing of the run is used but arrivals, lengths and engine settings."""
    run = read_run(data / "llmservingsim/bench/examples/RTX4090/Llama-3.1-8B/vllm")
    profile = read_profile(
        data / "llmservingsim/profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1",
        model="llama-3.1-8b",
        gpu="rtx-4090",
        kv_capacity_tokens=run.kv_capacity_tokens,
    )
    c = replay(run, focused_fit(profile, run, bootstrap=0).time)
    assert c.run.finished == run.count == 300
    for name in (
        "throughput_per_s",
        "ttft_s mean",
        "tpot_s p50",
        "running over time",
        "waiting over time",
        "kv_usage over time",
    ):
        assert abs(c.error(name)) < 0.10, c.text()
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert c.request_error(name) < 0.10, c.text()
    for name, path in c.paths.items():
        assert path.distance < 0.10, name

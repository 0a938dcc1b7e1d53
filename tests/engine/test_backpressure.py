"""Reservations, backpressure and named bottlenecks: what each does, and what they leave alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, RawRun, Requests, Run, Scheduler, simulate
from tileq_engine.backpressure import Backpressure, TbtControl
from tileq_engine.metrics_bottlenecks import bottleneck_metrics
from tileq_engine.pressure import CAUSES
from tileq_engine.records import REASONS
from tileq_engine.registry import policy
from tileq_engine.run import REJECT_REASONS
from tileq_engine.tenants import Tenants
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.004, tile_s=0.002, tile_tokens=16, kv_token_s=1e-6)
CONFIG = EngineConfig(token_budget=64, max_num_seqs=16, kv_tokens=640)


def burst(n: int = 120, rate: float = 60.0, seed: int = 1, **fixed: Any) -> Requests:
    g = np.random.default_rng(seed)
    lengths: dict[str, Any] = {"prompt_tokens": g.integers(1, 60, n), "output_tokens": g.integers(1, 40, n), **fixed}
    return Requests.from_arrays(arrival_s=g.exponential(1 / rate, n).cumsum(), **lengths)


def causes_of(run: RawRun) -> dict[str, float]:
    """Return the seconds of each cause."""
    return {name: c["seconds"] for name, c in bottleneck_metrics(Run.of(run))["causes"].items()}


# -------------------------------------------------------------------- reservations


@pytest.mark.parametrize("name", ["sarathi", "vllm_v1", "vllm_v0", "orca", "slai", "static", "rad", "vtc"])
def test_a_conservative_reservation_preempts_nobody(name: str) -> None:
    """With true predictions every block that a request will ever need is set aside; optimism pays with preemptions."""
    lost = {}
    for kind in ("conservative", "prompt", "optimistic"):
        config = CONFIG.with_(reservation=kind, check=True)
        run = simulate(burst(), policy(name), TIME, config)
        assert run.stop_reason == "finished" and run.counters["finished"] == 120, kind
        lost[kind] = run.counters["preemptions"]
    assert lost["conservative"] == 0
    if name not in ("static", "rad"):  # which hold back on their own
        assert lost["optimistic"] > 0


def test_optimism_fills_the_cache_and_caution_leaves_it() -> None:
    """More residents at once, the less is set aside for each."""
    held = {}
    for kind in ("optimistic", "prompt", "conservative"):
        config = EngineConfig(token_budget=64, max_num_seqs=64, kv_tokens=960, reservation=kind)
        asked = burst(400, 500.0, prompt_tokens=40, output_tokens=60)
        run = simulate(asked, policy("sarathi"), TIME, config)
        held[kind] = run.counters["peak_running"]
    assert held["optimistic"] >= held["prompt"] > held["conservative"]


def test_a_watermark_leaves_blocks_free_at_admission() -> None:
    asked = burst(200, 500.0, output_tokens=1)
    for share in (0.0, 0.25, 0.5):
        run = simulate(asked, policy("sarathi"), TIME, CONFIG.with_(watermark=share, reservation="prompt"))
        assert run.counters["peak_kv_blocks"] <= max(40 - int(40 * share), 4)  # a single request may have its own


# -------------------------------------------------------------------- backpressure


@pytest.mark.parametrize("action", ["reject", "reroute"])
def test_arrivals_are_turned_away_while_too_many_wait(action: str) -> None:
    """By hand: one slot, every request takes .05 s, all come at once and one may wait."""
    asked = Requests.from_arrays(arrival_ps=np.arange(5), prompt_tokens=8, output_tokens=5)
    config = EngineConfig(max_num_seqs=1, backpressure=Backpressure(action, waiting=2))  # type: ignore[arg-type]
    run = simulate(asked, policy("sarathi"), IterationTime.constant(0.01), config)
    word = {"reject": "backpressure", "reroute": "rerouted"}[action]
    assert [REASONS[r] for r in run.reject_reason.tolist()] == ["none", "none", "none", word, word]
    assert REJECT_REASONS[6:] == REASONS[6:] == ("backpressure", "rerouted")
    assert Run.of(run).rejections() == {word: 2}


def test_pressure_of_the_cache_is_seen_by_every_mode() -> None:
    asked = burst(200, 300.0)
    config = CONFIG.with_(backpressure=Backpressure("reject", kv_share=0.5))
    runs = [simulate(asked, policy("sarathi"), TIME, config, mode=m) for m in ("compiled", "stepped", "python")]  # type: ignore[arg-type]
    turned_away = runs[0].reject_reason == 6
    assert 10 < turned_away.sum() < 190
    for run in runs[1:]:
        assert np.array_equal(run.reject_reason, runs[0].reject_reason)
        assert np.array_equal(run.finish_ps, runs[0].finish_ps)


def test_holding_is_waiting() -> None:
    asked = burst()
    held = simulate(asked, policy("sarathi"), TIME, CONFIG.with_(backpressure=Backpressure("hold", waiting=1)))
    assert held.finish_ps.tolist() == simulate(asked, policy("sarathi"), TIME, CONFIG).finish_ps.tolist()


def test_chunks_shrink_under_pressure_and_grow_again() -> None:
    """While many wait an iteration has a quarter of the budget, and not when few do."""
    asked = burst(400, 80.0)
    config = EngineConfig(
        token_budget=64,
        max_num_seqs=16,
        backpressure=Backpressure("shrink", waiting=8, shrunk_tokens=16),
        trace_limit=10**6,
    )
    run = simulate(asked, policy("sarathi"), TIME, config, mode="stepped")
    trace = run.trace
    starts, first = np.unique(trace.start_ps, return_index=True)
    tokens = np.add.reduceat(trace.prefill_tokens, first)
    waiting = np.array([((run.arrival_ps <= t) & (run.admit_ps > t)).sum() for t in starts])
    decodes = np.add.reduceat(trace.decode, first)
    assert (waiting >= 8).any() and (waiting < 4).any()
    pressed = waiting >= 8  # after admission, so before it too
    assert (tokens[pressed] <= np.maximum(16 - decodes[pressed], 0)).all()
    assert tokens[waiting < 4].max() > 16


# -------------------------------------------------------------------- bottlenecks


def watched(asked: Requests, config: EngineConfig, name: str = "sarathi", **params: Any) -> dict[str, float]:
    return causes_of(simulate(asked, policy(name, **params), TIME, config.with_(watch=True)))


def main_cause(asked: Requests, config: EngineConfig, name: str = "sarathi", **params: Any) -> str:
    found = watched(asked, config, name, **params)
    return max(found, key=lambda cause: found[cause])


def test_every_bottleneck_is_called_by_its_name() -> None:
    free = EngineConfig(token_budget=64, max_num_seqs=256)
    short = {"prompt_tokens": 4, "output_tokens": 60}
    assert main_cause(burst(300, 500.0, **short), free.with_(max_num_seqs=8)) == "slots"
    assert main_cause(burst(300, 500.0, **short), free.with_(kv_tokens=320)) == "kv blocks"
    assert main_cause(burst(300, 500.0, prompt_tokens=500, output_tokens=2), free) == "prefill burst"
    assert main_cause(burst(600, 5000.0, prompt_tokens=1, output_tokens=200), free) == "decode pool"
    quota = free.with_(tenants=Tenants(("one",), quotas=(2,)))
    assert main_cause(burst(100, 500.0, **short), quota) == "quota"
    assert main_cause(burst(100, 4.0, **short), free.with_(max_num_seqs=8), "theta", k=8) == "policy"
    slow_link = free.with_(kv_tokens=320, preemption="swap", swap_token_s=0.05, reservation="prompt")
    assert watched(burst(60, 500.0, prompt_tokens=20, output_tokens=60), slow_link)["transfer"] > 0


def test_intervals_are_where_requests_wait() -> None:
    """Together they are exactly the iterations at whose start somebody waits on; their bounds are iterations'."""
    asked = burst(300, 70.0)
    config = EngineConfig(token_budget=64, max_num_seqs=8, watch=True, trace_limit=10**6)
    run = simulate(asked, policy("sarathi"), TIME, config, mode="stepped")
    found = run.bottlenecks
    assert (
        found is not None and (found.begin_ps[1:] >= found.end_ps[:-1]).all() and (found.end_ps > found.begin_ps).all()
    )
    starts, first = np.unique(run.trace.start_ps, return_index=True)
    ends = starts + run.trace.duration_ps[first]
    waits = np.array([((run.arrival_ps <= t) & (run.admit_ps > t)).any() for t in starts])
    assert int((ends - starts)[waits].sum()) == int((found.end_ps - found.begin_ps).sum())
    assert int(found.iterations.sum()) == int(waits.sum())
    assert set(found.begin_ps.tolist()) <= set(starts.tolist()) and set(found.end_ps.tolist()) <= set(ends.tolist())
    document = Run.of(run).to_dict()["bottlenecks"]
    assert sum(c["seconds"] for c in document["causes"].values()) == pytest.approx(
        document["waiting_share"] * run.end_ps * 1e-12
    )
    assert set(document["causes"]) <= set(CAUSES)


def test_watching_changes_nothing_and_survives_a_full_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = burst(6000, 45.0)
    config = EngineConfig(token_budget=64, max_num_seqs=8, kv_tokens=640)
    plain = simulate(asked, policy("vllm_v1"), TIME, config)
    seen = {
        m: simulate(asked, policy("vllm_v1"), TIME, config.with_(watch=True), mode=m) for m in ("compiled", "stepped")
    }  # type: ignore[arg-type]
    monkeypatch.setattr("tileq_engine.simulator_extras._CAUSE_ROWS", 8)
    flushed = simulate(asked, policy("vllm_v1"), TIME, config.with_(watch=True)).bottlenecks
    one, other = (run.bottlenecks for run in seen.values())
    assert one is not None and other is not None and flushed is not None
    assert np.array_equal(seen["compiled"].finish_ps, plain.finish_ps)
    assert one.end_ps.tolist() == other.end_ps.tolist() and one.cause.tolist() == other.cause.tolist()
    assert len(one.cause) > 100
    for name in ("cause", "begin_ps", "end_ps", "iterations", "waiting"):
        assert np.array_equal(getattr(flushed, name), getattr(one, name))


def test_the_scheduler_watches_and_counts_too() -> None:
    """A live engine: causes and accounts are kept by decide and complete."""
    config = EngineConfig(token_budget=64, max_num_seqs=1, watch=True, tenants=Tenants(("a", "b"), (1.0, 2.0)))
    s = Scheduler(policy("vtc"), config, capacity=8, tenants=2, python=True)
    for tenant in (0, 0, 1):
        s.add(prompt_tokens=4, output_tokens=2, tenant=tenant)
    served = []
    for turn in range(6):
        batch = s.decide(turn * 10**9)
        served += batch.ids.tolist()
        s.complete(10**9)
    assert served == [0, 0, 2, 2, 1, 1]
    run = s.raw_run(s.requests(), "finished", TIME, "python")
    assert run.bottlenecks is not None and run.tenants is not None
    assert {CAUSES[c] for c in run.bottlenecks.cause.tolist()} == {"slots"}
    assert run.tenants.end_delivered_tokens.tolist() == [4, 2]
    s.add(prompt_tokens=4, output_tokens=2, tenant=1)
    s.arrive(7 * 10**9)
    s.cancel(3)
    assert s.raw_run(s.requests(), "finished", TIME, "python").tenants is not None


# -------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Backpressure("reject"), "has no trigger"),
        (lambda: Backpressure("hold", waiting=0), "backpressure's waiting is 0"),
        (lambda: Backpressure("shrink", kv_share=1.5), "kv_share is 1.5"),
        (lambda: Backpressure("reject", waiting=3, shrunk_tokens=8), "expected 'shrink'"),
        (lambda: TbtControl(0.0), "control's tbt_s is 0.0"),
        (lambda: TbtControl(0.1, least_tokens=64, most_tokens=32), "control's least_tokens is 64"),
        (lambda: TbtControl(0.1, exceed=1.0), "control's exceed is 1.0"),
        (lambda: simulate(burst(5), policy("vllm_v0"), TIME, CONFIG.with_(control=TbtControl(0.1))), "makes none"),
        (
            lambda: simulate(
                burst(5), policy("static"), TIME, CONFIG.with_(backpressure=Backpressure("shrink", waiting=2))
            ),
            "makes none",
        ),
        (
            lambda: simulate(burst(5), policy("vllm_v1"), TIME, CONFIG.with_(control=TbtControl(0.1, least_tokens=4))),
            "at least one token a resident",
        ),
        (
            lambda: simulate(
                burst(5),
                policy("sarathi").with_rule(admission=lambda R, B, S, P, i: 1),
                TIME,
                CONFIG.with_(reservation="prompt"),
            ),
            "admission rule of its own",
        ),
    ],
)
def test_bad_settings_get_one_line(make: Any, told: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert told in str(error.value) and "\n" not in str(error.value)

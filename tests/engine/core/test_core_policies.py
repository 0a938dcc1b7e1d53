"""What single policies promise, on instances small enough to follow by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, RawRun, Requests, simulate
from tileq_engine.policies.threshold import best_threshold, theta0
from tileq_engine.registry import policy
from tileq_engine.rules.order import aging_score
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TICK = IterationTime.constant(0.05)
SECOND = 10**12


def mixed(n: int = 60, seed: int = 1, gap_s: float = 0.3) -> Requests:
    g = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=g.exponential(gap_s, n).cumsum(),
        prompt_tokens=g.integers(1, 300, n),
        output_tokens=g.integers(1, 60, n),
    )


def batches(run: RawRun) -> Any:
    return [sorted(b) for b in run.trace.batches()]


def test_slai_with_a_long_offset_is_sarathi_with_spf() -> None:
    """Theta = 10 and batches of 50 ms against a limit of .5 s: every decode is critical (schedulers.md, SLAI)."""
    config = EngineConfig(token_budget=64, max_num_seqs=32, trace_limit=100_000)
    slai = simulate(mixed(), policy("slai", order="spf", theta=10), TICK, config)
    sarathi = simulate(mixed(), policy("sarathi", order="spf"), TICK, config)
    assert batches(slai) == batches(sarathi)


def test_slai_lets_decodes_wait_for_prefills_but_not_beyond_their_limit() -> None:
    fast = IterationTime(launch_s=0.005, token_s=1e-5)
    asked = mixed(200, gap_s=0.02).with_tiers(seed=3, paying_share=0.3)
    config = EngineConfig(token_budget=128, max_num_seqs=64)
    slai = simulate(asked, policy("slai"), fast, config)
    sarathi = simulate(asked, policy("sarathi"), fast, config)
    assert slai.counters["iterations"] > 0 and slai.gaps_over_limit.sum() == 0
    mean = [np.mean((run.first_token_ps - run.arrival_ps) / SECOND) for run in (slai, sarathi)]
    assert mean[0] <= mean[1]
    assert slai.max_gap_ps.max() > sarathi.max_gap_ps.max()


def test_slai_serves_the_paying_tier_first() -> None:
    asked = Requests.from_arrays(
        arrival_s=np.zeros(5),
        prompt_tokens=[20, 60, 10, 70, 5],
        output_tokens=1,
        paying=[False, True, False, True, False],
    )
    config = EngineConfig(token_budget=16, max_num_seqs=1)
    run = simulate(asked, policy("slai", order="paying_spf"), TICK, config)
    assert np.argsort(run.finish_ps).tolist() == [1, 3, 4, 2, 0]


def test_the_scorer_of_the_rfc() -> None:
    assert aging_score(0.0, 0.0) == pytest.approx(0.5, abs=1e-12)
    assert aging_score(0.0, 32768.0) == pytest.approx(0.3845, abs=5e-5)
    assert aging_score(1e6, 0.0) <= 1.0
    waits = [aging_score(w, 100.0) for w in (0.0, 1.0, 5.0, 20.0)]
    assert waits == sorted(waits)


def test_theta0_of_the_source() -> None:
    assert theta0(1 / 200) == pytest.approx(0.0936781, abs=5e-8)
    assert best_threshold(128, 1 / 200) == 11


def test_theta_prefills_in_groups_of_k() -> None:
    asked = Requests.from_arrays(arrival_s=np.zeros(12), prompt_tokens=4, output_tokens=np.arange(3, 15))
    config = EngineConfig(token_budget=64, max_num_seqs=6, trace_limit=10_000)
    run = simulate(asked, policy("theta", k=3), TICK, config)
    sizes = [len(b) for b in run.trace.batches() if any(c for _, c, _ in b)]
    assert all(not (any(c for _, c, _ in b) and any(d for _, _, d in b)) for b in run.trace.batches())
    assert sizes == [3, 3, 3, 3]


def test_a_priority_takes_a_slot_from_below() -> None:
    asked = Requests.from_arrays(
        arrival_s=[0.0, 0.0, 0.51], prompt_tokens=16, output_tokens=50, priority=[1, 2, 0], class_index=[1, 2, 0]
    )
    config = EngineConfig(token_budget=64, max_num_seqs=2, check=True)
    run = simulate(asked, policy("priority"), TICK, config)
    assert run.preemptions.tolist() == [0, 1, 0]
    assert run.admit_ps[2] == 55 * SECOND // 100  # at the first decision after its arrival
    gentle = simulate(asked, policy("priority", preemptive=False), TICK, config)
    assert gentle.preemptions.sum() == 0 and gentle.admit_ps[2] > 2 * SECOND


def test_swap_moves_what_recompute_computes_again() -> None:
    asked = Requests.from_arrays(arrival_s=[0.0, 0.0], prompt_tokens=32, output_tokens=40)
    config = EngineConfig(token_budget=64, max_num_seqs=2, kv_tokens=96, swap_token_s=0.001, check=True)
    again = simulate(asked, policy("vllm_v0"), TICK, config)
    moved = simulate(asked, policy("vllm_v0"), TICK, config.with_(preemption="swap"))
    assert again.recomputed_tokens.sum() > 0 == again.swapped_tokens.sum()
    assert moved.swapped_tokens.sum() > 0 == moved.recomputed_tokens.sum()
    # 48 tokens travel out and back at 1 ms each; everything else is decode iterations of 50 ms
    assert moved.swapped_tokens.tolist() == [0, 96]
    assert moved.integrals["busy_ps"] == 5 * SECOND // 100 * moved.counters["iterations"] + 96 * SECOND // 1000


def test_wait_moves_a_class_when_its_threshold_has_gathered() -> None:
    asked = Requests.from_arrays(arrival_s=[0.0, 1.0, 2.0, 3.0], prompt_tokens=8, output_tokens=2)
    config = EngineConfig(convention="paper", trace_limit=100)
    run = simulate(asked, policy("wait", thresholds=[2]), TICK, config)
    assert run.admit_ps.tolist() == [SECOND, SECOND, 3 * SECOND, 3 * SECOND]
    assert run.stop_reason == "finished"
    assert run.finish_ps[0] >= 3 * SECOND  # its decodes waited for the next two


def test_wait_finds_the_fluid_thresholds() -> None:
    n = 4001
    asked = Requests.from_arrays(arrival_s=np.arange(n) * 0.01, prompt_tokens=100, output_tokens=20)
    time = IterationTime.wait(d0_s=0.05, d1_s=1e-6)
    state = policy("wait").prepare
    assert state is not None
    prepared = state(policy("wait"), asked, time, EngineConfig())
    load = 1e-6 * (n / (0.01 * (n - 1))) * 21 * 110
    assert prepared.integers == (int(np.ceil(n / (0.01 * (n - 1)) * 0.05 / (1 - load))),)
    with pytest.raises(InputError, match="fluid load"):
        simulate(asked, policy("wait"), IterationTime.wait(d0_s=0.05, d1_s=1e-4))


def test_nested_wait_moves_deeper_segments_only_with_company() -> None:
    asked = Requests.from_arrays(arrival_s=[0.0, 0.0, 0.9, 0.9, 9.0], prompt_tokens=8, output_tokens=[5, 1, 5, 1, 1])
    config = EngineConfig(convention="paper", trace_limit=1000)
    rule = policy("nested_wait", boundaries=[1], thresholds=[2, 2])
    run = simulate(asked, rule, TICK, config)
    # the first long one passes its first token only with the next pair, and goes on when two stand at the door
    assert run.finish_ps[1] < run.finish_ps[0]
    assert run.stop_reason == "finished"


def test_generalised_rad_keeps_the_plans_proportions() -> None:
    asked = Requests.from_arrays(arrival_s=np.zeros(400), prompt_tokens=96, output_tokens=33)
    levels = [(64, 64, 0, 0.8), (64, 0, 64, 0.2)]  # more prefill than the lengths ask: decodes are never short
    config = EngineConfig(max_num_seqs=300, trace_limit=200_000)
    run = simulate(asked, policy("rad_general", levels=levels), TICK, config)
    kinds = [any(c for _, c, _ in b) for b in run.trace.batches()][200:400]
    assert np.mean(kinds) == pytest.approx(0.8, abs=0.01)
    full = [sum(c + d for _, c, d in b) for b in run.trace.batches()][20:400]
    assert set(full) == {64}


def test_a_plan_is_read_by_its_levels() -> None:
    class Use:
        tokens, prefill_tokens, decode_tokens, iterations_per_s = 512, 400.2, 111.8, 3.0

    class Plan:
        levels = (Use(),)

    assert policy("rad_general", plan=Plan()).params["levels"] == ((512, 400, 112, 3.0),)
    with pytest.raises(InputError, match="TilePlan"):
        policy("rad_general", plan=object())


@pytest.mark.parametrize("predictor", ["oracle", "noise", "quantile", "none"])
def test_predictors_change_the_order_only(predictor: str) -> None:
    asked = mixed(40, gap_s=0.01)
    run = simulate(asked, policy("sjf", predictor=predictor, base="sarathi"), TICK, EngineConfig(max_num_seqs=2))
    assert run.counters["finished"] == 40
    fcfs = simulate(asked, policy("sarathi"), TICK, EngineConfig(max_num_seqs=2))
    same = np.array_equal(run.finish_ps, fcfs.finish_ps)
    assert same == (predictor in ("none", "quantile"))


def test_eb_plus_mixes_when_tiles_make_mixing_cheaper() -> None:
    asked = mixed(60, gap_s=0.01)
    config = EngineConfig(token_budget=256, max_num_seqs=16, trace_limit=50_000)
    floor = IterationTime(weight_floor_s=0.05, token_s=1e-4)  # below the floor, prefill beside decode is free
    run = simulate(asked, policy("eb_plus"), floor, config)
    assert any(any(c for _, c, _ in b) and any(d for _, _, d in b) for b in run.trace.batches())
    theta = simulate(asked, policy("theta"), floor, config)
    assert run.integrals["busy_ps"] < theta.integrals["busy_ps"]

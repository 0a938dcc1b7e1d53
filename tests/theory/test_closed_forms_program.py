"""The numerical capacity program against the closed forms, to 1e-6: neither knows the other."""

from __future__ import annotations

import numpy as np
import pytest

from tileq_theory.capacity import Level, Limits, capacity, rad_capacity, sarathi_capacity
from tileq_theory.closed_forms import closed_form
from tileq_theory.demand import Demand
from tileq_theory.iteration_time import IterationTime


def random_case(seed: int) -> tuple[IterationTime, Demand, Limits]:
    rng = np.random.default_rng(seed)
    prompt, output = int(rng.integers(20, 400)), int(rng.integers(20, 400))
    kv_read = output * prompt + output * (output + 1) / 2
    demand = Demand(
        prompt, output, kv_read, prompt * (prompt + 1) / 2, kv_read + 1.5 * prompt, output + 2, prompt, prompt + output
    )
    time = IterationTime(
        launch_s=float(rng.uniform(0, 0.01)), weight_floor_s=float(rng.uniform(0, 0.02)),
        tile_s=float(rng.uniform(0.001, 0.02)), tile_tokens=int(rng.choice([16, 64, 128])),
        token_s=float(rng.uniform(0, 1e-5)), pair_s=float(rng.uniform(0, 1e-7)),
        kv_token_s=float(rng.uniform(0, 1e-7)), sequence_s=float(rng.uniform(0, 1e-5)),
    )  # fmt: skip
    limits = Limits(
        max_batch_tokens=1024, max_num_seqs=int(rng.integers(16, 256)),
        kv_tokens=float(rng.uniform(2 * (prompt + output), 1e5)), nodes=int(rng.integers(1, 4)),
    )  # fmt: skip
    return time, demand, limits


def values_of(time: IterationTime, demand: Demand, limits: Limits) -> dict[str, float]:
    assert limits.max_num_seqs is not None
    assert limits.kv_tokens is not None
    return {
        "nodes": limits.nodes, "prefill_tokens": demand.prefill_tokens, "decode_tokens": demand.decode_tokens,
        "kv_read_tokens": demand.kv_read_tokens, "attention_pairs": demand.attention_pairs,
        "memory_iterations": demand.memory_iterations, "slot_iterations": demand.slot_iterations,
        "max_sequences": limits.max_num_seqs, "kv_capacity_tokens": limits.kv_tokens, "kv_token_s": time.kv_token_s,
        "pair_s": time.pair_s, "sequence_s": time.sequence_s,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_one_token_budget(seed: int) -> None:
    time, demand, limits = random_case(seed)
    budget = int(np.random.default_rng(seed).integers(32, 1024))
    where = {**values_of(time, demand, limits), "batch_tokens": budget, "tau_s": float(time.tau_s(budget))}
    closed = closed_form("single_level").evaluate(**where)
    assert sarathi_capacity(time, demand, limits, token_budget=budget).rate_per_s == pytest.approx(closed, rel=1e-6)
    limit = 2.5 * where["tau_s"]
    under = closed_form("single_level_tbt").evaluate(**where, tbt_s=limit)
    answer = sarathi_capacity(time, demand, limits.with_(tbt_s=limit), token_budget=budget)
    assert answer.rate_per_s == pytest.approx(under, rel=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_exclusive_levels(seed: int) -> None:
    time, demand, limits = random_case(100 + seed)
    rng = np.random.default_rng(seed)
    prefill, decode = int(rng.integers(64, 1024)), int(rng.integers(4, (limits.max_num_seqs or 0) + 1))
    closed = closed_form("exclusive").evaluate(
        **values_of(time, demand, limits), prefill_batch_tokens=prefill, decode_batch_sequences=decode,
        prefill_iteration_s=float(time.tau_s(prefill)), decode_iteration_s=float(time.tau_s(decode)),
    )  # fmt: skip
    levels = [Level(prefill, "prefill"), Level(decode, "decode")]
    answer = capacity(time, demand, limits, levels=levels)
    assert answer.rate_per_s == pytest.approx(closed, rel=1e-6)


@pytest.mark.parametrize(("b_lcm", "b_col", "nodes"), [(128, 128, 1), (512, 64, 3)])
def test_rad(b_lcm: int, b_col: int, nodes: int) -> None:
    time = IterationTime.rad(t_lin_s=0.004, t_nl_s=5e-6, tile_tokens=b_col)
    demand = Demand(576, 185, 123_765, 166_176, 126_000, 187, 1024, 1536)
    limits = Limits(max_batch_tokens=1024, nodes=nodes)
    answer = rad_capacity(time, demand, limits, prefill_tile_tokens=b_lcm, decode_tile_tokens=b_col)
    closed = closed_form("rad_capacity").evaluate(
        nodes=nodes, prefill_tokens=576, decode_tokens=185, t_lin_s=0.004, t_nl_s=5e-6, b_col_tokens=b_col,
        b_lcm_tokens=b_lcm,
    )  # fmt: skip
    assert answer.rate_per_s == pytest.approx(closed, rel=1e-6)

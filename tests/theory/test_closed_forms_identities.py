"""Identities of sections 2 and 3 to 1e-9 at random parameters, and the two derived forms against a linear program."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.closed_forms import closed_form
from tileq_theory.closed_forms.single_level import single_level_rows
from tileq_theory.closed_forms.static import expected_maximum, expected_maximum_geometric
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

SOME = settings(max_examples=25, deadline=None)
TIMES = st.floats(1e-6, 1.0)
SMALL = st.floats(0.0, 1e-4)
TOKENS = st.integers(1, 4000)
TILES = st.integers(1, 512)


# ---------------------------------------------------------------------- section 2: every source is a setting


@SOME
@given(TIMES, SMALL, TILES, TOKENS)
def test_rad_time_is_a_setting_of_the_family(t_lin, t_nl, tile, tokens) -> None:
    family = closed_form("iteration_time").evaluate(
        launch_s=0, weight_floor_s=0, tile_s=t_lin, tile_tokens=tile, token_s=t_nl, pair_s=0, kv_token_s=0,
        sequence_s=0, batch_tokens=tokens, pairs=0, kv_tokens=0, sequences=0,
    )  # fmt: skip
    model = IterationTime.rad(t_lin_s=t_lin, t_nl_s=t_nl, tile_tokens=tile)
    assert float(model(tokens)) == pytest.approx(family, rel=1e-12)
    if tokens == tile:
        token = closed_form("rad_token_time").evaluate(t_lin_s=t_lin, t_nl_s=t_nl, b_col_tokens=tile)
        assert family == pytest.approx(tile * token, rel=1e-12)


@SOME
@given(TIMES, TIMES, TILES, TOKENS)
def test_dai_time_is_a_setting_of_the_family(launch, tile_s, tile, tokens) -> None:
    source = closed_form("dai_iteration_time")
    value = source.evaluate(launch_s=launch, tile_s=tile_s, tile_tokens=tile, batch_tokens=tokens)
    model = IterationTime.dai(launch_s=launch, tile_s=tile_s, tile_tokens=tile)
    assert float(model(tokens)) == pytest.approx(value, rel=1e-12)


@SOME
@given(st.floats(1e-3, 1.0), st.floats(1e-7, 1e-4), st.integers(0, 2000), TOKENS)
def test_gate_and_route_time_is_a_setting_of_the_family(c0, a0, b0, tokens) -> None:
    source = closed_form("gate_and_route_iteration_time")
    value = source.evaluate(c0_s=c0, a0_s=a0, b0_tokens=b0, batch_tokens=tokens)
    floor = Fraction(a0) * b0
    family = closed_form("iteration_time").evaluate(
        launch_s=Fraction(c0) - floor, weight_floor_s=floor, tile_s=0, tile_tokens=1, token_s=a0, pair_s=0,
        kv_token_s=0, sequence_s=0, batch_tokens=tokens, pairs=0, kv_tokens=0, sequences=0,
    )  # fmt: skip
    assert family == pytest.approx(value, rel=1e-15)
    model = IterationTime.gate_and_route(c0_s=c0, a0_s=a0, b0_tokens=b0)
    assert float(model(tokens)) == pytest.approx(value, rel=1e-9)


def test_full_family_against_the_model() -> None:
    model = IterationTime(0.01, 0.02, 0.004, 128, 2e-5, 1e-9, 3e-8, 1e-5)
    for tokens, pairs, kv, sequences in itertools.product((1, 128, 129, 900), (0, 10_000), (0, 5000), (1, 64)):
        value = closed_form("iteration_time").evaluate(
            launch_s=0.01, weight_floor_s=0.02, tile_s=0.004, tile_tokens=128, token_s=2e-5, pair_s=1e-9,
            kv_token_s=3e-8, sequence_s=1e-5, batch_tokens=tokens, pairs=pairs, kv_tokens=kv, sequences=sequences,
        )  # fmt: skip
        assert float(model(tokens, pairs, kv, sequences)) == pytest.approx(value, rel=1e-12)


# ---------------------------------------------------------------------- section 3: identities between sources


@SOME
@given(TOKENS, st.integers(0, 2000), st.integers(1000, 10**6), TIMES, st.integers(1, 8))
def test_wait_without_kv_time_is_nie_with_one_chunk(prompt, output, memory, seconds, nodes) -> None:
    wait = closed_form("wait_capacity").evaluate(
        prompt_tokens=prompt, output_tokens=output, kv_capacity_tokens=memory, d0_s=seconds, d1_s=0
    )
    g = closed_form("nie_mean_g_fixed").exact(prompt_tokens=prompt, output_tokens=output, chunk_tokens=prompt)
    nie = closed_form("nie_capacity").evaluate(
        nodes=nodes, kv_capacity_tokens=memory, batch_s=seconds, memory_iterations=g
    )
    assert nodes * wait == pytest.approx(nie, rel=1e-9)


@SOME
@given(TIMES, TILES, TOKENS, TOKENS, st.integers(1, 8))
def test_rad_without_token_time_is_dai_without_a_constant(tile_s, tile, prompt, output, nodes) -> None:
    rad = closed_form("rad_capacity").evaluate(
        nodes=nodes, prefill_tokens=prompt, decode_tokens=output, t_lin_s=tile_s, t_nl_s=0, b_col_tokens=tile,
        b_lcm_tokens=tile,
    )  # fmt: skip
    dai = closed_form("dai_capacity").evaluate(
        nodes=nodes, prefill_tokens=prompt, decode_tokens=output, launch_s=0, tile_s=tile_s, tile_tokens=tile,
        batch_tokens=tile,
    )  # fmt: skip
    assert rad == pytest.approx(dai, rel=1e-9)


@SOME
@given(TIMES, SMALL, st.integers(1, 128), st.integers(1, 4), TOKENS, TOKENS)
def test_rad_is_exclusive_batching_with_ample_memory(t_lin, t_nl, tile, multiple, prompt, output) -> None:
    rad = closed_form("rad_capacity").evaluate(
        nodes=2, prefill_tokens=prompt, decode_tokens=output, t_lin_s=t_lin, t_nl_s=t_nl, b_col_tokens=tile,
        b_lcm_tokens=tile * multiple,
    )  # fmt: skip
    huge = 10**15
    exclusive = closed_form("exclusive").evaluate(
        nodes=2, prefill_tokens=prompt, decode_tokens=output, kv_read_tokens=1, attention_pairs=1, memory_iterations=1,
        slot_iterations=1, prefill_batch_tokens=tile * multiple, decode_batch_sequences=tile, max_sequences=huge,
        kv_capacity_tokens=huge, prefill_iteration_s=Fraction(t_lin) * multiple + Fraction(t_nl) * tile * multiple,
        decode_iteration_s=Fraction(t_lin) + Fraction(t_nl) * tile, kv_token_s=0, pair_s=0, sequence_s=0,
    )  # fmt: skip
    assert exclusive == pytest.approx(rad, rel=1e-9)


def test_single_level_contains_dai_and_nie() -> None:
    where = {
        "nodes": 3, "prefill_tokens": 300, "decode_tokens": 170, "kv_read_tokens": 1, "attention_pairs": 1,
        "memory_iterations": 66_000, "slot_iterations": 1, "batch_tokens": 512, "max_sequences": 10**9,
        "tau_s": "0.15316", "kv_token_s": 0, "pair_s": 0, "sequence_s": 0,
    }  # fmt: skip
    single = closed_form("single_level")
    dai = closed_form("dai_capacity").exact(
        nodes=3, prefill_tokens=300, decode_tokens=170, launch_s="0.01128", tile_s="0.03547", tile_tokens=128,
        batch_tokens=512,
    )  # fmt: skip
    assert single.exact(kv_capacity_tokens=10**9, **where) == dai
    nie = closed_form("nie_capacity").exact(
        nodes=3, kv_capacity_tokens=9000, batch_s="0.15316", memory_iterations=66_000
    )
    assert single.exact(kv_capacity_tokens=9000, **where) == nie


# ---------------------------------------------------------------------- the derived forms against linear programs


def instance(rng: np.random.Generator) -> dict[str, float]:
    """A random single node whose rows are of like size, so that each of them binds now and then."""
    draw = {
        "prefill_tokens": rng.uniform(50, 500), "decode_tokens": rng.uniform(50, 500),
        "kv_read_tokens": rng.uniform(1e4, 1e5), "attention_pairs": rng.uniform(1e3, 1e5),
        "memory_iterations": rng.uniform(1e4, 2e5), "slot_iterations": rng.uniform(60, 600),
        "max_sequences": float(rng.integers(100, 300)),
        "kv_capacity_tokens": rng.uniform(1e4, 1e5), "kv_token_s": rng.uniform(0, 1e-7), "pair_s": rng.uniform(0, 1e-7),
        "sequence_s": rng.uniform(0, 1e-5), "nodes": float(rng.integers(1, 5)),
    }  # fmt: skip
    return {name: float(value) for name, value in draw.items()}


@pytest.mark.parametrize("seed", range(40))
def test_single_level_is_the_optimum_of_its_program(seed: int) -> None:
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    v = {**instance(rng), "batch_tokens": float(rng.integers(64, 512)), "tau_s": float(rng.uniform(0.01, 0.05))}
    tbt = v["tau_s"] * float(rng.uniform(1.05, 3))
    # variables: rate per node, x, p, d, y, z
    P, D, G, A = (v[k] for k in ("prefill_tokens", "decode_tokens", "kv_read_tokens", "attention_pairs"))
    n, N, M = v["batch_tokens"], v["max_sequences"], v["kv_capacity_tokens"]
    k, e, s, tau = v["kv_token_s"], v["pair_s"], v["sequence_s"], v["tau_s"]
    rows = [
        [0, -n, 1, 1, 0, 0],
        [0, -N, 0, 1, 0, 0],
        [0, -M, 0, 0, 1, 0],
        [P, 0, -1, 0, 0, 0],
        [D, 0, 0, -1, 0, 0],
        [v["memory_iterations"], -M, 0, 0, 0, 0],
        [v["slot_iterations"], -N, 0, 0, 0, 0],
        [s * v["slot_iterations"], tau, 0, 0, k, e],
    ]
    limits = [0.0] * 7 + [1.0]
    equal = [[G, 0, 0, 0, -1, 0], [A, 0, 0, 0, 0, -1]]
    for row, form in (([], "single_level"), ([[0, tau - tbt, 0, s, k, e]], "single_level_tbt")):
        answer = linprog([-1, 0, 0, 0, 0, 0], rows + row, limits + [0.0] * len(row), equal, [0.0, 0.0])
        values = {q.name: {**v, "tbt_s": tbt}[q.name] for q in closed_form(form).quantities}
        assert v["nodes"] * -answer.fun == pytest.approx(closed_form(form).evaluate(**values), rel=1e-7)
    needed = {q.name: {**v, "tbt_s": tbt}[q.name] for q in closed_form("single_level_tbt").quantities[1:]}
    asked = single_level_rows(**needed)
    assert list(asked.values()) == sorted(asked.values(), reverse=True)
    busy = tau * next(iter(asked.values())) + k * G + e * A + s * v["slot_iterations"]
    values = {q.name: {**v, "tbt_s": tbt}[q.name] for q in closed_form("single_level_tbt").quantities}
    assert v["nodes"] / busy == pytest.approx(closed_form("single_level_tbt").evaluate(**values), rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_exclusive_is_the_optimum_of_its_program(seed: int) -> None:
    from scipy.optimize import linprog

    rng = np.random.default_rng(1000 + seed)
    v = {
        **instance(rng), "prefill_batch_tokens": float(rng.integers(64, 512)),
        "decode_batch_sequences": float(rng.integers(8, 100)),
        "prefill_iteration_s": float(rng.uniform(0.01, 0.05)), "decode_iteration_s": float(rng.uniform(0.005, 0.03)),
    }  # fmt: skip
    M, N = v["kv_capacity_tokens"], v["max_sequences"]
    fixed = v["kv_token_s"] * v["kv_read_tokens"] + v["pair_s"] * v["attention_pairs"]
    fixed += v["sequence_s"] * v["slot_iterations"]
    # variables: rate per node, x_p, x_d
    rows = [
        [v["prefill_tokens"], -v["prefill_batch_tokens"], 0],
        [v["decode_tokens"], 0, -v["decode_batch_sequences"]],
        [v["kv_read_tokens"], 0, -M],
        [v["memory_iterations"], -M, -M],
        [v["slot_iterations"], -N, -N],
        [fixed, v["prefill_iteration_s"], v["decode_iteration_s"]],
    ]
    answer = linprog([-1, 0, 0], rows, [0, 0, 0, 0, 0, 1])
    assert v["nodes"] * -answer.fun == pytest.approx(closed_form("exclusive").evaluate(**v), rel=1e-7)


def test_single_level_rows_refuse_what_is_missing_or_impossible() -> None:
    where = {q.name: 1.0 for q in closed_form("single_level").quantities[1:]}
    with pytest.raises(InputError, match=r"unknown \['spare'\], missing \[\]"):
        single_level_rows(**where, spare=1)
    with pytest.raises(InputError, match=r"missing \['tau_s'\]"):
        single_level_rows(**{k: x for k, x in where.items() if k != "tau_s"})
    with pytest.raises(InputError, match=r"tbt_s is 1\.0; expected more than tau_s"):
        single_level_rows(**where, tbt_s=1.0)
    with pytest.raises(InputError, match="max_sequences is 0"):
        single_level_rows(**{**where, "max_sequences": 0})


# ---------------------------------------------------------------------- static batches


@pytest.mark.parametrize(
    ("law", "size"), [([0.2, 0.3, 0.5], 3), ([0.0, 1.0], 5), ([0.5, 0.0, 0.25, 0.25], 2), ([1.0], 4)]
)
def test_expected_maximum_by_enumeration(law, size) -> None:
    total = 0.0
    for lengths in itertools.product(range(len(law)), repeat=size):
        total += max(lengths) * float(np.prod([law[j] for j in lengths]))
    assert expected_maximum(np.array(law), size) == pytest.approx(total, rel=1e-12, abs=1e-15)


def test_expected_maximum_of_geometric_lengths() -> None:
    mean, size = 7.5, 6
    q = Fraction(mean - 1) / Fraction(mean)
    # inclusion and exclusion: the minimum of j geometric lengths is geometric
    exact = sum((-1) ** (j + 1) * math.comb(size, j) / (1 - q**j) for j in range(1, size + 1))
    assert expected_maximum_geometric(mean, size) == pytest.approx(float(exact), rel=1e-13)
    law = np.array([0.0] + [float((1 - q) * q**j) for j in range(600)])
    assert expected_maximum(law / law.sum(), size) == pytest.approx(float(exact), rel=1e-12)
    assert expected_maximum_geometric(1, 9) == 1
    assert expected_maximum_geometric(50, 1) == pytest.approx(50, rel=1e-12)


def test_static_capacity_by_renewal_reward() -> None:
    longest = expected_maximum(np.array([0.0] + [0.01] * 100), 8)
    where = {"nodes": 1, "batch_requests": 8, "prefill_s": 0.2, "longest_steps": longest, "decode_step_s": 0.02}
    value = closed_form("static_capacity").evaluate(**where)
    assert value == pytest.approx(8 / (0.2 + 0.02 * longest), rel=1e-12)
    # never better than continuous batching with the same steps: each step decodes at most 8 of the 50.5 mean tokens
    assert value < 8 / (0.2 + 0.02 * 50.5)


@pytest.mark.parametrize(
    ("law", "size", "message"),
    [
        ([0.5, 0.4], 2, "sum to 0.9"),
        ([1.5, -0.5], 2, "each finite and 0 or more"),
        ([], 2, "at least one"),
        ([1.0], 0, "size is 0"),
        ([np.nan], 1, "each finite"),
    ],
)
def test_expected_maximum_refuses(law, size, message) -> None:
    with pytest.raises(InputError, match=message):
        expected_maximum(np.array(law, dtype=float), size)


def test_expected_maximum_geometric_refuses() -> None:
    for arguments, message in (((0.5, 2), "mean is 0.5"), ((2.0, 0), "size is 0"), ((float("nan"), 2), "mean is nan")):
        with pytest.raises(InputError, match=message):
            expected_maximum_geometric(*arguments)
    with pytest.raises(InputError, match="tail is 0"):
        expected_maximum_geometric(2.0, 2, tail=0)

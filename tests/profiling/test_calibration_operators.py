"""Operator profiles of one layer, put together to iterations of a whole model."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileq_profiling.fit import fit
from tileq_profiling.operators import Launch, aiconfigurator_profile, llmservingsim_profile, vidur_profile
from tileq_profiling.operators.curves import Curve
from tileq_profiling.operators.vidur import LAYER_OPERATORS
from tileq_theory.errors import InputError
from tileq_theory.hardware import Model, load_model

TINY = Model("tiny", layers=3, hidden=64, heads=4, kv_heads=2, head_dim=16, intermediate=128, vocab=1000)


# ---------------------------------------------------------------- curves


def test_close_sizes_take_the_next_one_far_ones_the_line() -> None:
    curve = Curve.of("k", [(100, 1.0), (108, 2.0), (216, 4.0)])
    assert curve(np.array([100.0, 101.0, 108.0, 162.0, 216.0, 432.0])).tolist() == [1.0, 2.0, 2.0, 3.0, 4.0, 8.0]


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(1e-6, 1.0)), min_size=1, max_size=20))
def test_a_curve_meets_its_medians_and_stays_between(points: list[tuple[int, float]]) -> None:
    curve = Curve.of("k", points)
    for size in {p[0] for p in points}:
        own = [t for s, t in points if s == size]
        assert curve(np.array([float(size)]))[0] == pytest.approx(np.median(own))
    inside = curve(np.linspace(curve.sizes[0], curve.sizes[-1], 50))
    assert inside.min() >= curve.seconds.min() * (1 - 1e-12) and inside.max() <= curve.seconds.max() * (1 + 1e-12)


@pytest.mark.parametrize("points", [[], [(1, float("nan"))], [(-1, 0.1)], [(1, -0.1)]])
def test_bad_curves_are_refused(points: list[tuple[float, float]]) -> None:
    with pytest.raises(InputError, match="operator k"):
        Curve.of("k", points)


# ---------------------------------------------------------------- Vidur


def vidur_columns(**changes: Any) -> dict[str, Any]:
    tokens = np.array([1.0, 64, 128, 1, 64, 128])
    columns: dict[str, Any] = {
        "num_tokens": tokens,
        "num_tensor_parallel_workers": np.array([1.0, 1, 1, 2, 2, 2]),
        "n_head": np.full(6, 4.0),
        "n_kv_head": np.full(6, 2.0),
        "n_embd": np.full(6, 64.0),
        "n_expanded_embd": np.full(6, 128.0),
        "use_gated_mlp": np.array(["True"] * 6),
    }
    for i, name in enumerate(LAYER_OPERATORS):
        columns[f"time_stats.{name}.median"] = (i + 1) * 1e-3 * (1 + tokens / 64)
    return {**columns, **changes}


def test_vidurs_layer_is_multiplied_by_the_layers() -> None:
    """Nine operators of 1 ... 9 us at n = 0, the last (add) twice: 54 us a layer, three layers, and the launch."""
    p = vidur_profile(vidur_columns(), TINY, launch=Launch(iteration_s=1e-3, layer_s=1e-5))
    np.testing.assert_allclose(p.seconds, 3 * 54e-6 * (1 + p.tokens / 64) + 1e-3 + 3e-5, rtol=1e-12)
    assert p.scope == "layer operators" and p.unknown == ("pairs", "kv_tokens", "sequences")
    assert any("launch and host time of 1.03 ms" in note for note in p.conditions.notes)


def test_two_devices_add_two_all_reduces_a_layer() -> None:
    bare = vidur_profile(vidur_columns(), TINY, tp=2)
    joined = vidur_profile(vidur_columns(), TINY, tp=2, all_reduce=[(128, 5e-6), (128 * 128, 20e-6)])
    extra = joined.seconds - bare.seconds
    np.testing.assert_allclose(extra, 6 * np.interp(bare.tokens * 128, [128, 128 * 128], [5e-6, 20e-6]), rtol=1e-9)
    assert any("all-reduces are not" in n for n in bare.conditions.notes)


@pytest.mark.parametrize(
    ("changes", "tp", "words"),
    [
        ({"n_embd": np.full(6, 65.0)}, 1, "n_embd 65, but tiny has hidden 64"),
        ({}, 4, "no row of tensor parallel 4; it has 1, 2"),
        ({"num_tokens": np.array(["x"] * 6)}, 1, "no numeric column 'num_tokens'"),
    ],
)
def test_a_vidur_table_of_another_model_is_refused(changes: dict[str, Any], tp: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        vidur_profile(vidur_columns(**changes), TINY, tp=tp)


def test_a_model_of_another_name_fits_its_table(data: Path) -> None:
    """The linear layers of Llama-2-7B on an A100: held out within 5 %, without KV and pairs, and the fit says so."""
    file = data / "vidur/profiling/compute/a100/meta-llama/Llama-2-7b-hf/mlp.csv"
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    p = vidur_profile({k: [r[k] for r in rows] for k in rows[0]}, load_model("llama-2-7b"))
    c = fit(p, bootstrap=0)
    assert c.median_error < 0.05
    assert sum("is not measured" in w for w in c.warnings) == 2


# ---------------------------------------------------------------- LLMServingSim


def layer_tables() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    dense = [
        {"layer": name, "tokens": n, "time_us": t * n}
        for n in (1, 2, 4, 8, 16)
        for name, t in (("qkv_proj", 2.0), ("layernorm", 0.5), ("embedding", 0.25))
    ]
    attention = [
        {"prefill_chunk": c, "kv_prefill": 0, "n_decode": d, "kv_decode": s, "time_us": 1.0 + c + d * s}
        for c, d, s in ((4, 0, 0), (16, 0, 0), (0, 1, 32), (0, 8, 32), (4, 4, 16))
    ]
    ends = [{"layer": "lm_head", "sequences": m, "time_us": 10.0 * m} for m in (1, 2, 4, 8, 16)]
    return dense, attention, ends


def test_layers_norms_and_ends_add_up() -> None:
    """A layer: qkv 2 us a token, two norms of .5; outside: embedding .25 us a token, lm_head 10 us a sequence."""
    p = llmservingsim_profile(*layer_tables(), TINY)
    rows = {tuple(r): t for r, t in zip(p.compositions.tolist(), p.seconds.tolist(), strict=True)}
    for (n, _, kv, m), seconds in rows.items():
        chunk = n - (m if kv and n == m else m - 1 if kv else 0)
        attention = 1 + chunk + kv
        if (n, kv) != (8, 0):
            assert seconds == pytest.approx(1e-6 * (3 * (2 * n + n) + 3 * attention + 0.25 * n + 10 * m)), (n, kv, m)
    assert (8.0, 36.0, 0.0, 1.0) in rows  # the dense table's size between two lone chunks is a lone prefill too
    assert set(p.phase.tolist()) == {"prefill", "decode", "mixed"}


def test_what_does_not_fit_into_memory_is_left_out() -> None:
    tables = layer_tables()
    assert llmservingsim_profile(*tables, TINY, most_kv_tokens=100).kv_tokens.max() <= 100
    with pytest.raises(InputError, match="no attention row fits"):
        llmservingsim_profile(*tables, TINY, most_kv_tokens=0.5)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_row_that_lacks_a_key_is_named(which: int) -> None:
    tables = [list(t) for t in layer_tables()]
    tables[which][1] = {"layer": "x"}
    with pytest.raises(InputError, match="row 1"):
        llmservingsim_profile(tables[0], tables[1], tables[2], TINY)


# ---------------------------------------------------------------- aiconfigurator


def kernels() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    shapes = [(128, 64), (64, 64), (256, 64), (64, 128), (500, 64)]
    gemm = [
        {"gemm_dtype": "bfloat16", "m": m, "n": n, "k": k, "latency": 1e-6 * n * k * (1 + m / 64) / 64}
        for n, k in shapes
        for m in (1, 8, 64, 512)
    ]
    heads = {"num_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    kinds = {"attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}
    context = [{**heads, **kinds, "batch_size": b, "isl": 8, "step": 0, "latency": 1e-3 * b} for b in (1, 2, 4)]
    generation = [
        {**heads, **kinds, "batch_size": b, "isl": 1, "step": s, "latency": 1e-6 * b * s}
        for b in (1, 4)
        for s in (100, 1000)
    ]
    return gemm, context, generation


def test_kernels_add_up_to_iterations() -> None:
    """Products of a layer: n k = 128*64 + 64*64 + 256*64 + 64*128; lm_head scaled from 500 to 1000 outputs."""
    p = aiconfigurator_profile(*kernels(), TINY)
    work = 128 * 64 + 64 * 64 + 256 * 64 + 64 * 128
    growth = 1 + p.tokens / 64
    attention = np.where(p.phase == "prefill", 1e-6 * p.sequences, 1e-9 * (p.kv_tokens - p.sequences))
    head = 2 * 500 * 64 * 1e-9 * (1 + p.sequences / 64) / 64
    np.testing.assert_allclose(p.seconds, 3 * work * 1e-9 * growth / 64 + 3 * attention + head, rtol=1e-9)
    notes = " ".join(p.conditions.notes)
    assert "product 1000 x 64 not timed: 500 x 64 scaled" in notes and "element-wise kernels are not" in notes
    assert p.kv_tokens.max() == 4 * 1001 and p.pairs.max() == 4 * 36


def test_other_heads_are_refused() -> None:
    other = Model("other", layers=3, hidden=64, heads=8, kv_heads=2, head_dim=8, intermediate=128, vocab=1000)
    with pytest.raises(InputError, match="no attention row has 8 heads"):
        aiconfigurator_profile(*kernels(), other)


def test_a_mixture_of_experts_is_refused() -> None:
    with pytest.raises(InputError, match="mixture of experts"):
        aiconfigurator_profile(*kernels(), load_model("mixtral-8x7b-v0.1"))


def test_without_launch_the_profile_says_so() -> None:
    p = aiconfigurator_profile(*kernels(), TINY)
    assert any("kernels only" in n for n in p.conditions.notes)
    q = aiconfigurator_profile(*kernels(), TINY, launch=Launch(iteration_s=0.5))
    np.testing.assert_allclose(q.seconds - p.seconds, 0.5, rtol=1e-9)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_bad_launch_times_are_refused(value: float) -> None:
    with pytest.raises(InputError, match="layer_s"):
        Launch(layer_s=value)

"""The datasheet roofline: each coefficient from its formula, tensor parallelism, dtypes, mixtures, monotonicity."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.hardware import Gpu, Model, gpu_names, load_gpu, load_model, model_names, roofline
from tileq_theory.hardware.shard import Shard, valid_tp
from tileq_theory.iteration_time import IterationTime

H100, LLAMA = load_gpu("h100-sxm"), load_model("llama-3.1-8b")
COEFFICIENTS = ("launch_s", "weight_floor_s", "tile_s", "token_s", "pair_s", "kv_token_s", "sequence_s")


def close(value: float, expected: float) -> bool:
    return value == pytest.approx(expected, rel=1e-12)


def test_llama_on_h100_by_hand() -> None:
    t = roofline(H100, LLAMA)
    matrices = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    read = 2 * (matrices + 128256 * 4096 + (2 * 32 + 1) * 4096)
    assert close(t.weight_floor_s, read / 3350e9)
    assert (t.tile_tokens, t.launch_s) == (128, 0.0)
    assert close(t.tile_s, 128 * 2 * matrices / 989e12)
    elementwise = 2 * (32 * (8 * 4096 + 2 * (4096 + 1024) + 4 * 1024 + 3 * 14336) + 6 * 4096)
    assert close(t.token_s, elementwise / 3350e9)
    assert close(t.pair_s, 4 * 32 * 4096 / 989e12)
    assert close(t.kv_token_s, 131072 / 3350e9)
    assert close(t.sequence_s, 2 * 128256 * 4096 / 989e12)


def test_affine_model_passes_through_the_tile_corners() -> None:
    tiled, affine = roofline(H100, LLAMA), roofline(H100, LLAMA, tile_tokens=None)
    assert affine.tile_s == 0.0
    for n in (128, 1024, 8192):
        assert close(float(affine(n, 10.0, 20.0, 3)), float(tiled(n, 10.0, 20.0, 3)))
    for n in (1, 129, 1000):
        assert float(affine(n)) <= float(tiled(n))


@pytest.mark.parametrize("tile", [1, 64, 256])
def test_tile_size_moves_the_steps_only(tile: int) -> None:
    assert close(roofline(H100, LLAMA, tile_tokens=tile).tile_s * 128, roofline(H100, LLAMA).tile_s * tile)


def test_launch_is_an_option() -> None:
    assert roofline(H100, LLAMA, launch_s=0.002).launch_s == 0.002


# ---------------------------------------------------------------- dtypes


def test_fp8_halves_layers_but_neither_lm_head_nor_cache() -> None:
    half, full = roofline(H100, LLAMA, dtype="fp8"), roofline(H100, LLAMA)
    saved = (32 * LLAMA.attention_matrix_params + 32 * 3 * 4096 * 14336) / 3350e9
    assert close(full.weight_floor_s - half.weight_floor_s, saved)
    assert close(half.tile_s, full.tile_s * 989 / 1979)
    assert (half.kv_token_s, half.sequence_s, half.pair_s) == (full.kv_token_s, full.sequence_s, full.pair_s)
    assert close(roofline(H100, LLAMA, kv_dtype="fp8").kv_token_s, full.kv_token_s / 2)


def test_weight_only_formats_save_reading_not_arithmetic() -> None:
    a100 = load_gpu("a100")
    packed, full = roofline(a100, LLAMA, dtype="w4a16"), roofline(a100, LLAMA)
    assert packed.tile_s == full.tile_s
    assert 0.25 < packed.weight_floor_s / full.weight_floor_s < 0.40
    with pytest.raises(InputError, match="no fp8 arithmetic"):
        roofline(a100, LLAMA, dtype="fp8")
    with pytest.raises(InputError, match="no bf16 arithmetic; use fp16"):
        roofline(load_gpu("t4"), LLAMA)
    assert roofline(load_gpu("t4"), LLAMA, dtype="fp16").tile_s > 0


# ---------------------------------------------------------------- tensor parallelism


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_ranks_divide_everything_but_norms_and_all_reduces(tp: int) -> None:
    one, many = roofline(H100, LLAMA), roofline(H100, LLAMA, tp=tp)
    for name in ("weight_floor_s", "tile_s", "pair_s", "kv_token_s", "sequence_s"):
        assert close(getattr(many, name), getattr(one, name) / tp), name
    ring = 2 * 32 * 2 * (tp - 1) / tp * 4096 * 2 / 450e9
    norms = 2 * (32 * 8 * 4096 + 6 * 4096)
    elementwise = norms + (Shard(LLAMA, 1).elementwise_bytes_per_token() - norms) / tp
    assert close(many.token_s, ring + elementwise / 3350e9)
    assert close(many.launch_s, 2 * 32 * 10e-6)
    assert roofline(H100, LLAMA, tp=tp, all_reduce_latency_s=0.0).launch_s == 0.0


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    sixteen, eight = roofline(H100, LLAMA, tp=16), roofline(H100, LLAMA, tp=8)
    assert sixteen.kv_token_s == eight.kv_token_s
    replicated = 2 * 32 * 4096 * 128 * (1 - 8 / 16)
    extra = sixteen.weight_floor_s - eight.weight_floor_s / 2
    assert extra == pytest.approx(2 * replicated / 3350e9, rel=1e-6)


@pytest.mark.parametrize("tp", [3, 5, 64])
def test_degrees_that_do_not_divide_are_refused(tp: int) -> None:
    with pytest.raises(InputError, match=rf"tp is {tp}; expected .*32 heads.* 1, 2, 4, 8, 16, 32"):
        roofline(H100, LLAMA, tp=tp)


def test_missing_link_and_bad_tp() -> None:
    gpu = Gpu("linkless", "Test", {"bf16": 1e14}, 24e9, 1e12)
    assert roofline(gpu, LLAMA).tile_s > 0
    with pytest.raises(InputError, match=r"linkless has no link bandwidth"):
        roofline(gpu, LLAMA, tp=2)
    with pytest.raises(InputError, match="tp"):
        roofline(H100, LLAMA, tp=0)


@given(st.sampled_from(model_names()), st.integers(1, 64))
def test_valid_tp_is_exactly_what_shard_accepts(name: str, tp: int) -> None:
    model = load_model(name)
    if tp in valid_tp(model):
        shard = Shard(model, tp)
        assert shard.kv_heads * tp >= model.kv_heads
        assert shard.weight_bytes("bf16") * tp >= model.weight_bytes("bf16") * (1 - 1e-12)
    else:
        with pytest.raises(InputError):
            Shard(model, tp)


# ---------------------------------------------------------------- mixtures


def test_mixtures_read_all_experts_and_compute_the_chosen() -> None:
    model = load_model("qwen3-30b-a3b")
    t = roofline(H100, model)
    assert close(t.tile_s, 128 * model.linear_flops_per_token / 989e12)
    assert model.linear_flops_per_token < 0.12 * 2 * model.params_total
    assert close(t.weight_floor_s, model.streamed_weight_bytes() / 3350e9)
    assert any("all experts" in note for note in t.provenance.notes)


def test_expert_batch_tokens_read_fewer_experts() -> None:
    model = load_model("qwen3-30b-a3b")
    floors = [roofline(H100, model, expert_batch_tokens=n).weight_floor_s for n in (1, 4, 16, 64, 1024)]
    assert floors == sorted(floors) and floors[-1] == pytest.approx(roofline(H100, model).weight_floor_s, rel=1e-9)
    active = model.params_active - model.embedding_params  # the embedding table is looked up, not read
    assert floors[0] == pytest.approx(2 * active / 3350e9, rel=1e-12)
    with pytest.raises(InputError, match="expert_batch_tokens"):
        roofline(H100, model, expert_batch_tokens=0)


def test_sliding_layers_are_announced() -> None:
    notes = roofline(H100, load_model("gemma-2-9b")).provenance.notes
    assert any("21 of 42 layers attend to 4096 tokens only" in note for note in notes)


# ---------------------------------------------------------------- properties


def later(t: IterationTime, other: IterationTime) -> bool:
    """Whether `other` is nowhere faster than `t`."""
    return all(getattr(other, name) >= getattr(t, name) for name in COEFFICIENTS)


@given(
    st.sampled_from(gpu_names()),
    st.sampled_from(model_names()),
    st.sampled_from(["bandwidth_bytes_per_s", "link_bytes_per_s", "peak_flops"]),
    st.floats(1.0, 10.0),
    st.sampled_from([1, 2]),
)
def test_a_faster_gpu_is_never_slower(gpu_name: str, model_name: str, fact: str, factor: float, tp: int) -> None:
    gpu, model = load_gpu(gpu_name), load_model(model_name)
    value = getattr(gpu, fact)
    faster = {k: factor * v for k, v in value.items()} if fact == "peak_flops" else factor * value
    assert later(
        roofline(replace(gpu, **{fact: faster}), model, dtype="fp16", tp=tp), roofline(gpu, model, dtype="fp16", tp=tp)
    )


@given(st.sampled_from(gpu_names()), st.floats(0.1, 10.0))
def test_a_gpu_twice_as_fast_in_everything_takes_half(gpu_name: str, factor: float) -> None:
    gpu = load_gpu(gpu_name)
    faster = replace(
        gpu,
        bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s * factor,
        peak_flops={k: v * factor for k, v in gpu.peak_flops.items()},
    )
    for tile in (128, None):
        slow, fast = (roofline(g, LLAMA, dtype="fp16", tile_tokens=tile) for g in (gpu, faster))
        for name in COEFFICIENTS:
            assert getattr(fast, name) * factor == pytest.approx(getattr(slow, name), rel=1e-12)


@given(st.sampled_from(model_names()), st.integers(1, 3))
def test_more_layers_are_never_faster(name: str, more: int) -> None:
    model = load_model(name)
    moe = model.moe_layers + more if model.moe_layers else 0
    deeper = replace(model, layers=model.layers + more, moe_layers=moe)
    assert later(roofline(H100, model), roofline(H100, deeper))


def test_every_pair_of_the_catalogue_has_a_roofline() -> None:
    for gpu_name in gpu_names():
        for model_name in model_names():
            t = roofline(load_gpu(gpu_name), load_model(model_name), dtype="fp16")
            affine = roofline(load_gpu(gpu_name), load_model(model_name), dtype="fp16", tile_tokens=None)
            # one tile of 128 tokens may cost more than reading the weights (RTX 3090); one token never does
            assert 0 <= t.floor_tokens() <= affine.floor_tokens() + 128
            assert affine.floor_tokens() >= 1
            assert t.error_band.low < t.error_band.high


def test_provenance_names_the_assumptions() -> None:
    t = roofline(H100, LLAMA)
    assert t.provenance.kind == "datasheet"
    assert "h100-sxm" in t.provenance.source
    assert any("tile of 128 tokens assumed" in note for note in t.provenance.notes)
    assert any("no tile" in note for note in roofline(H100, LLAMA, tile_tokens=None).provenance.notes)
    doubtful = roofline(load_gpu("a10g"), LLAMA).provenance.notes
    assert any("not confirmed by a second source: bf16_tflops" in note for note in doubtful)


def test_quick() -> None:
    """About 50 us without the tests' type checking; 20 ms of processor time would mean work done twice (no cache)."""
    roofline(H100, LLAMA)
    begin = time.process_time()
    for _ in range(100):
        roofline(H100, LLAMA)
    assert (time.process_time() - begin) / 100 < 0.02


def test_own_model_and_gpu() -> None:
    gpu = Gpu("mine", "Test", {"bf16": 1e12}, 24e9, 1e9)
    model = Model("tiny", layers=1, hidden=8, heads=2, kv_heads=2, head_dim=4, intermediate=16, vocab=10)
    t = roofline(gpu, model, tile_tokens=4)
    assert close(t.tile_s, 4 * 2 * (8 * 24 + 64 + 3 * 8 * 16) / 1e12)
    assert "not of the catalogue" in t.error_band.basis

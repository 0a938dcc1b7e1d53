"""The compiled arithmetic against plain torch: row by row, layer by layer, and in what it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.errors import InputError

SHAPES: dict[str, dict[str, Any]] = {
    "llama": {},
    "heads alone": {"heads": 2, "kv_heads": 2},
    "odd widths": {"hidden": 60, "heads": 3, "kv_heads": 1, "head_dim": 22},
    "qwen3": {"qk_norm": True, "tie_embeddings": True},
    "biases": {"attention_bias": True, "output_bias": True, "mlp_bias": True},
    "window": {"sliding_window": 9, "sliding_layers": (0,)},
}
KINDS = ("packed", "compiled")


def made(kind: str, seed: int = 3, attention: str = "auto", **fields: Any) -> Any:
    from tileq_engine.decoder import Decoder, DecoderConfig, random_weights

    shape: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "vocab": 128, **fields}
    config = DecoderConfig.small(**shape)
    weights = random_weights(config, seed)
    return Decoder(config, weights, blocks=200, block_tokens=4, arithmetic=kind, attention=attention)


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_plain_torch(kind: str, shape: str) -> None:
    """The same schedules, 200 rows in a batch at times: several tiles, filled up and whole ones."""
    from decoder_schedules import random_texts, run_schedule

    texts = random_texts(np.random.default_rng(1), 128, count=6, longest=90)
    fast, plain = made(kind, **SHAPES[shape]), made("torch", **SHAPES[shape])
    found = run_schedule(np.random.default_rng(2), fast, texts, longest_chunk=70)
    expected = run_schedule(np.random.default_rng(2), plain, texts, longest_chunk=70)
    assert found.keys() == expected.keys()
    assert max(float((found[k] - expected[k]).abs().max()) for k in found) < 2e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attention", ["paged", "sdpa"])
def test_a_row_keeps_its_bits_in_any_tile(kind: str, attention: str) -> None:
    """Single tokens among up to 300 others, at any place: below, at and above the size of a tile."""
    import torch

    from tileq_engine.decoder import Member, flat_batch

    decoder = made(kind, attention=attention, hidden=96)
    alone = {t: decoder.forward(flat_batch([Member([t], 0, [0])], 4))[0] for t in range(100)}
    assert decoder.row_invariant()
    for count in (1, 2, 3, 5, 12, 127, 128, 129, 133, 199):
        together = decoder.forward(flat_batch([Member([i % 100], 0, [i]) for i in range(count)], 4))
        assert all(torch.equal(row, alone[i % 100]) for i, row in enumerate(together)), count


def test_packed_rows_keep_their_bits_at_odd_widths_and_the_blas_is_asked() -> None:
    """A BLAS may take a row of 33 numbers by where it lies in memory; the check sees whether it does."""
    import torch

    from tileq_engine.decoder import Member, flat_batch

    decoder = made("packed", hidden=33, heads=3, kv_heads=1, head_dim=10, vocab=37)
    assert decoder.row_invariant()
    alone = [decoder.forward(flat_batch([Member([t], 0, [0])], 4))[0] for t in range(37)]
    together = decoder.forward(flat_batch([Member([t], 0, [t]) for t in range(37)], 4))
    assert all(torch.equal(row, one) for row, one in zip(together, alone, strict=True))
    plain = made("torch", hidden=33, heads=3, kv_heads=1, head_dim=10, vocab=37)
    places = [plain.forward(flat_batch([Member([1], 0, [i]) for i in range(12)], 4))[k] for k in range(12)]
    if plain.row_invariant():
        assert all(torch.equal(place, places[0]) for place in places)


def test_a_batch_whose_logits_nobody_wants() -> None:
    from tileq_engine.decoder import Member, flat_batch

    for kind in KINDS:
        decoder = made(kind)
        logits = decoder.forward(flat_batch([Member([1, 2, 3], 0, [1], logits=False)], 4))
        assert tuple(logits.shape) == (0, 128)


def kernels() -> list[Any]:
    """Return the kernels as they are written and compiled."""
    from types import SimpleNamespace

    from tileq_engine.compile_module import compiled_module
    from tileq_engine.decoder import compiled_layers, row_kernels

    return [row_kernels, SimpleNamespace(**compiled_module(row_kernels, "rows", compiled_layers._OPTIONS))]


@given(seed=st.integers(0, 2**31), rows=st.integers(1, 5), width=st.sampled_from([1, 7, 32, 100]))
@settings(max_examples=15)
def test_norms_are_torchs(seed: int, rows: int, width: int) -> None:
    import torch
    from torch.nn.functional import rms_norm

    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((rows, width)) * 10.0 ** rng.integers(-3, 4)).astype(np.float32)
    weight = rng.standard_normal(width).astype(np.float32)
    exact = rms_norm(torch.from_numpy(x).double(), (width,), torch.from_numpy(weight).double(), 1e-5).numpy()
    for kernel in kernels():
        out = np.empty_like(x)
        kernel.norm_rows(x, weight, 1e-5, out)
        assert out == pytest.approx(exact, rel=2e-6, abs=1e-30)


@given(x=st.lists(st.floats(-200, 200, width=32), min_size=1, max_size=40))
@settings(max_examples=60)
def test_the_gate_is_silu(x: list[float]) -> None:
    """Against float64: to a few roundings and one of the exponent x log2(e), and below -87 to nothing."""
    gate = np.array(x, dtype=np.float32)
    wide = gate.astype(np.float64)
    exact = wide / (1 + np.exp(-wide)) * 1.5
    both = np.concatenate((gate, np.full_like(gate, 1.5)))[None]
    for kernel in kernels():
        out = np.empty((1, len(x)), dtype=np.float32)
        kernel.gate_rows(both, out)
        assert (np.abs(out[0] - exact) <= (1e-6 + np.abs(wide) * 2**-23) * np.abs(exact) + 2e-36).all()


@pytest.mark.filterwarnings("ignore:.*(overflow|invalid).*:RuntimeWarning")
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    """In every place of a vector's width; a number beside it is left as it is."""
    for kernel in kernels():
        for place in range(20):
            gate = np.ones((2, 40), dtype=np.float32)
            gate[0, place] = gate[1, 20 + place] = bad
            out = np.empty((2, 20), dtype=np.float32)
            kernel.gate_rows(gate, out)
            assert np.flatnonzero(~np.isfinite(out[0])).tolist() == [place]
            assert np.flatnonzero(~np.isfinite(out[1])).tolist() == [place]
            normed = np.empty((1, 40), dtype=np.float32)
            kernel.norm_rows(gate[:1], np.ones(40, dtype=np.float32), 1e-5, normed)
            assert not np.isfinite(normed[0, place])
    largest = np.array([[3e38, -3e38, 1, 1]], dtype=np.float32)
    for kernel in kernels():
        out = np.empty((1, 2), dtype=np.float32)
        kernel.gate_rows(largest, out)
        assert out.tolist() == [[pytest.approx(3e38), 0]]


def test_a_slot_outside_the_cache_is_refused_before_anything_is_written_there() -> None:
    import torch

    from tileq_engine.decoder import Member, flat_batch

    batch = flat_batch([Member([1, 2, 3], 0, [3])], 4)
    for kind in KINDS:
        for changes in (
            {"slots": torch.tensor([12, 13, 999_999])},
            {"slots": torch.tensor([12, 13, -1])},
            {"positions": torch.tensor([0, 1, 10**9])},
        ):
            with pytest.raises(IndexError, match="token 2"):
                made(kind).forward(dataclasses.replace(batch, **changes))


def test_what_cannot_be_is_refused_or_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from tileq_engine.decoder import Decoder, DecoderConfig, products, random_weights

    config = DecoderConfig.small(layers=1, hidden=32, heads=2, kv_heads=1, vocab=40)
    weights = random_weights(config, 1)
    with pytest.raises(InputError, match=r"packd.*packed"):
        Decoder(config, weights, blocks=2, arithmetic="packd")
    half = random_weights(config, 1, dtype=torch.bfloat16)
    assert Decoder(config, half, blocks=2).arithmetic == "torch"
    with pytest.raises(InputError, match=r"packed.*bfloat16"):
        Decoder(config, half, blocks=2, arithmetic="packed")
    monkeypatch.setattr(products, "free_bytes", lambda _: 100_000)
    decoder = Decoder(config, weights, blocks=2)
    assert decoder.arithmetic == "compiled"
    assert "more than half" in str(decoder.describe()["arithmetic_passed_over"])
    monkeypatch.undo()
    monkeypatch.setattr(products.PackedProduct, "__call__", lambda self, x: x @ self.matrix.T + 1)
    assert "differs by 1" in str(Decoder(config, weights, blocks=2).describe()["arithmetic_passed_over"])

"""A request's logits are the same bits whatever shares its batch, however it is cut and wherever its blocks lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def small(seed: int = 3, **fields: Any) -> Any:
    from tileq_engine.decoder import Decoder, DecoderConfig, random_weights

    shape: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "vocab": 128, **fields}
    config = DecoderConfig.small(**shape)
    return Decoder(config, random_weights(config, seed), blocks=160, block_tokens=4)


@given(seed=st.integers(0, 2**31), chunk=st.integers(1, 24))
@settings(max_examples=8)
def test_logits_are_the_same_bits_under_any_schedule(seed: int, chunk: int) -> None:
    import torch
    from decoder_schedules import random_texts, run_schedule

    rng = np.random.default_rng(seed)
    decoder = small(qk_norm=bool(seed % 2), sliding_window=9 if seed % 3 == 0 else None, sliding_layers=(1,))
    texts = random_texts(rng, decoder.config.vocab_size, count=4, longest=24)
    mixed = run_schedule(rng, decoder, texts, longest_chunk=chunk)
    for i, text in enumerate(texts):
        alone = run_schedule(rng, decoder, [text], longest_chunk=1)
        for (_, at), logits in alone.items():
            if (i, at) in mixed:
                assert torch.equal(logits, mixed[i, at]), (i, at)


@given(seed=st.integers(0, 2**31))
@settings(max_examples=8)
def test_greedy_tokens_survive_preemption_by_recompute_and_by_swap(seed: int) -> None:
    """Generate alone; generate with the cache thrown away or moved at random instants: same tokens."""
    import torch

    rng = np.random.default_rng(seed)
    decoder = small()
    prompt = rng.integers(0, 128, size=int(rng.integers(1, 30)))
    expected = _generate(decoder, rng, prompt, 12, disturbed=False)
    assert _generate(decoder, rng, prompt, 12, disturbed=True) == expected
    assert torch.get_num_threads() >= 1


def _generate(decoder: Any, rng: np.random.Generator, prompt: np.ndarray, count: int, disturbed: bool) -> list[int]:
    from tileq_engine.decoder import Member, flat_batch

    history = [int(t) for t in prompt]
    cached, blocks = 0, rng.permutation(decoder.blocks)[:20]
    while len(history) < len(prompt) + count:
        what = rng.random() if disturbed else 1.0
        if what < 0.15:
            cached, blocks = 0, rng.permutation(decoder.blocks)[:20]
            decoder.kv.data.fill_(float("nan"))
        elif what < 0.3:
            host = decoder.copy_out(blocks)
            decoder.kv.data.fill_(float("nan"))
            blocks = rng.permutation(decoder.blocks)[:20]
            decoder.copy_in(host, blocks)
        left = len(history) - cached
        size = int(rng.integers(1, left + 1)) if disturbed else left
        batch = flat_batch([Member(history[cached : cached + size], cached, blocks)], decoder.block_tokens)
        logits = decoder.forward(batch)
        cached += size
        if cached == len(history):
            history.append(int(logits.argmax()))
    return history[len(prompt) :]


def test_without_filled_rows_single_decodes_take_another_path() -> None:
    """Shows what `invariant` is for: if this ever holds without it, the rows need no filling."""
    import torch

    from tileq_engine.decoder import Decoder, Member, flat_batch

    decoder = small(hidden=256, layers=2)
    loose = Decoder(decoder.config, decoder.weights, blocks=40, block_tokens=4, invariant=False)
    assert (decoder.row_multiple, loose.row_multiple) == (4, 1)
    members = [Member([i], 0, [i]) for i in range(8)]
    together = decoder.forward(flat_batch(members, 4))
    alone = torch.cat([decoder.forward(flat_batch([m], 4)) for m in members])
    assert torch.equal(together, alone)
    assert torch.allclose(loose.forward(flat_batch(members[:1], 4)), together[:1], atol=1e-4)


def test_the_compiled_kernel_agrees_with_its_plain_source() -> None:
    """The same functions, uncompiled, against a softmax in float64.

    Scores reach 40 and float32 keeps 6e-8 of them, so that weights are true to 40 * 6e-8 and a few roundings more.
    """
    from tileq_engine.decoder.attention.paged import compiled_attention
    from tileq_engine.decoder.attention.paged_kernel import find_rows, paged_attention

    rng = np.random.default_rng(5)
    for kernel, find in (compiled_attention(), (paged_attention, find_rows)):
        _check_kernel(rng, kernel, find)


def _check_kernel(rng: np.random.Generator, kernel: Any, find: Any) -> None:
    keys, values = (rng.standard_normal((9, 3, 2, 4)).astype(np.float32) * 3 for _ in range(2))
    table = np.array([[8, 2, 5], [1, 7, 0]], dtype=np.int32)
    start, context = np.array([0, 3, 4], dtype=np.int32), np.array([7, 5], dtype=np.int32)
    query = rng.standard_normal((4, 4, 4)).astype(np.float32) * 3
    begin, rows = np.empty(2, np.int64), np.empty(12, np.int64)
    find(table, context, 3, begin, rows)
    assert (begin.tolist(), rows[7:12].tolist()) == ([0, 7], [3, 4, 5, 21, 22])
    flat = (keys.reshape(27, 2, 4), values.reshape(27, 2, 4), start, context, begin, rows)
    for window in (0, 3):
        out = np.full_like(query, np.nan)
        scores, bits = np.empty((4, 16), np.float32), np.empty(16, np.int32)
        kernel(query, *flat, 0.5, window, scores, bits, out)
        for t, s, stop in ((0, 0, 5), (1, 0, 6), (2, 0, 7), (3, 1, 5)):
            first = max(0, stop - window) if window else 0
            for h in range(4):
                k, v = (x[table[s]].reshape(-1, 2, 4)[first:stop, h // 2].astype(np.float64) for x in (keys, values))
                weight = np.exp((k @ query[t, h]) * 0.5)
                assert out[t, h] == pytest.approx(weight @ v / weight.sum(), rel=1e-5, abs=1e-5)


@given(scores=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=80))
@settings(max_examples=60)
def test_the_kernels_softmax_is_true_to_a_few_roundings(scores: list[float]) -> None:
    """Differences of float32 scores are rounded to 6e-8 of themselves (at most 200 here) before the exponential."""
    from tileq_engine.decoder.attention.paged_kernel import exponentials

    exact = np.exp(np.array(scores, dtype=np.float64) - max(scores))
    row = np.array(scores, dtype=np.float32)
    exponentials(row, len(row), np.empty(len(row), dtype=np.int32))
    assert row == pytest.approx(exact / exact.sum(), rel=200 * 2**-23, abs=1e-36)
    assert float(row.sum()) == pytest.approx(1, abs=1e-5)

"""What a GPU would run, as far as a machine without one can tell; and how the attention is chosen."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.errors import InputError


def decoder(attention: str = "auto", **fields: Any) -> Any:
    from tileq_engine.decoder import Decoder, DecoderConfig, random_weights

    shape: dict[str, Any] = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "vocab": 64, **fields}
    config = DecoderConfig.small(**shape)
    return Decoder(config, random_weights(config, 5), blocks=64, block_tokens=4, attention=attention)


@given(seed=st.integers(0, 2**31), decodes=st.booleans(), attention=st.sampled_from(["paged", "sdpa"]))
@settings(max_examples=10)
def test_filling_a_batch_up_to_a_recorded_shape_changes_no_logit(seed: int, decodes: bool, attention: str) -> None:
    import torch
    from decoder_schedules import random_texts, scattered_blocks

    from tileq_engine.decoder import Member, flat_batch
    from tileq_engine.decoder.graphs import GraphShape, filled

    rng = np.random.default_rng(seed)
    d = decoder(attention)
    texts = random_texts(rng, 64, count=5, longest=40)
    blocks = scattered_blocks(rng, d, texts)
    cut = [len(t) - 1 if decodes else int(rng.integers(0, len(t))) for t in texts]
    for text, at, held in zip(texts, cut, blocks, strict=True):
        if at:
            d.forward(flat_batch([Member(text[:at], 0, held)], 4))
    wanted = rng.random(5) < 0.7
    members = [
        Member(text[at:], at, held, bool(decodes or w))
        for text, at, held, w in zip(texts, cut, blocks, wanted, strict=True)
    ]
    batch = flat_batch(members, 4)
    shape = GraphShape(8, 8) if batch.decode_only else GraphShape(batch.tokens + 7, 8)
    assert shape.holds(batch)
    expected = d.forward(batch)
    full = filled(batch, shape, 16, d.kv)
    assert (full.tokens if decodes else len(full.token_ids), full.sequences) == (shape.tokens, shape.sequences)
    assert tuple(full.block_table.shape) == (8, 16)
    assert torch.equal(d.forward(full)[: len(expected)], expected)


class _PlayedBack:
    """Stands for a CUDA graph: runs the recorded batch again, into the same logits."""

    def __init__(self, run: Any, batch: Any, logits: Any) -> None:
        self.run, self.batch, self.logits = run, batch, logits

    def replay(self) -> None:
        self.logits.copy_(self.run(self.batch))


def test_replays_serve_every_batch_that_a_shape_holds() -> None:
    """The copies into the recorded tensors and the choice of the shape, with a run in place of the graph."""
    import torch

    from tileq_engine.decoder import Member, flat_batch
    from tileq_engine.decoder.graphs import Graphs, GraphShape, _Recorded

    d = decoder("sdpa")
    graphs = Graphs(d._run, d.kv, longest_context=32)
    for shape in (GraphShape(2, 2), GraphShape(4, 4), GraphShape(24, 4)):
        static = graphs._static(shape)
        logits = torch.zeros(shape.sequences, 64)
        graphs._recorded[shape] = _Recorded(static, logits, _PlayedBack(_sized(d), static, logits))
    batches = {
        "one decode": [Member([3], 0, [1])],
        "three decodes": [Member([i], 2, [i]) for i in (4, 5, 6)],
        "a chunk and decodes": [Member([7, 8, 9], 4, [10, 11]), Member([2], 3, [4])],
    }
    for members in batches.values():
        batch = flat_batch(members, 4)
        replayed = graphs.forward(batch)
        assert replayed is not None
        assert torch.allclose(replayed, d.forward(batch), atol=1e-5)
    assert graphs.replays == 3
    assert graphs.forward(flat_batch([Member([i], 0, [i]) for i in range(5)], 4)) is None
    assert graphs.forward(flat_batch([Member([1] * 25, 0, range(7))], 4)) is None
    assert graphs.forward(flat_batch([Member([1], 35, range(9))], 4)) is None, "a context beyond the recorded ones"
    with pytest.raises(InputError, match="CUDA"):
        graphs.record([GraphShape(1, 1)])


def _sized(d: Any) -> Any:
    """Run a recorded batch with the sizes that its tensors hold now (a graph has no need of them)."""
    import dataclasses

    def run(batch: Any) -> Any:
        starts, contexts = batch.query_start.numpy(), batch.context_tokens.numpy()
        return d._run(dataclasses.replace(batch, host_query_start=starts, host_context_tokens=contexts))

    return run


def test_capture_without_cuda_is_refused() -> None:
    with pytest.raises(InputError, match="cannot run in a CUDA graph"):
        decoder().capture()


class _Wrong:
    """An attention with a fault: it raises, or leaves out the last sequence, as a broken kernel would."""

    name = "wrong"
    graphable = False

    def __init__(self, how: str) -> None:
        from tileq_engine.decoder.attention.sdpa import SdpaAttention

        self.how, self.right = how, SdpaAttention()

    def plan(self, batch: Any, pool: Any) -> Any:
        if self.how == "raises":
            raise RuntimeError("no kernel image\nfor this device")
        return self.right.plan(batch, pool)[: -1 if self.how == "leaves one out" else None]

    def __call__(self, layer: int, query: Any, pool: Any, plan: Any, window: int | None) -> Any:
        out = self.right(layer, query, pool, plan, None if self.how == "no window" else window)
        return out * float("nan") if self.how == "nan" else out


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "RuntimeError: no kernel image"),
        ("leaves one out", "differs"),
        ("nan", "differs by inf"),
        ("no window", "differs"),
        ("right", None),
    ],
)
def test_the_probe_finds_a_wrong_attention(how: str, said: str | None) -> None:
    import torch

    from tileq_engine.decoder.attention.probe import fault

    config = decoder(sliding_window=6, sliding_layers=(1,)).config
    told = fault(lambda: _Wrong(how), config, torch.device("cpu"), torch.float32, 4)
    assert told is None if said is None else told is not None and said in told


def test_a_window_longer_than_the_probes_batches_is_tried_too() -> None:
    """Mistral's 4096 tokens reach beyond every batch of the probe: an attention that forgets windows must not pass."""
    import torch

    from tileq_engine.decoder.attention.probe import fault

    config = decoder(sliding_window=4096, sliding_layers=(0, 1)).config
    said = fault(lambda: _Wrong("no window"), config, torch.device("cpu"), torch.float32, 4)
    assert said is not None
    assert "differs" in said


def test_what_was_chosen_is_shown() -> None:
    shown = decoder().describe()
    assert (shown["attention"], shown["attention_passed_over"]) == ("paged", {})
    assert shown["kv_bytes"] == 2 * 2 * 65 * 4 * 2 * 8 * 4
    assert decoder("sdpa").attention_name == "sdpa"
    with pytest.raises(InputError, match="'triton paged' does not work here"):
        decoder("triton paged")


def test_rows_keep_their_bits_on_this_machine() -> None:
    """What token identity rests on; where a BLAS breaks it, this says so rather than a rare flip of a token."""
    assert decoder(hidden=256, vocab=512).row_invariant()


def test_bfloat16_runs_portably_on_the_cpu() -> None:
    """The same weights, rounded to bfloat16 (2^-8 of each), in both types: logits of order one differ by a few 2^-8."""
    import torch

    from tileq_engine.decoder import Decoder, DecoderConfig, Member, flat_batch, random_weights
    from tileq_engine.decoder.weights import allocate, parts

    config = DecoderConfig.small(layers=2, hidden=64, qk_norm=True)
    rounded = random_weights(config, 1, torch.bfloat16)
    exact = allocate(config, torch.float32, "cpu")
    for one, two in zip(parts(config, rounded), parts(config, exact), strict=True):
        two.tensor.copy_(one.tensor)
    batch = flat_batch([Member(range(20), 0, [2, 0])])
    short, long = (Decoder(config, weights, blocks=4) for weights in (rounded, exact))
    assert (short.attention_name, long.attention_name) == ("sdpa", "paged")
    difference = (short.forward(batch) - long.forward(batch)).abs()
    assert short.forward(batch).dtype == torch.float32
    assert 0 < float(difference.max()) < 0.2


def _varlen_of_2_11(  # type: ignore[no-untyped-def]
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None, window_size=(-1, -1)
):
    """torch 2.11's variable-length attention by its documentation: contiguous keys, windows, no groups of heads."""
    if query.shape[1] != key.shape[1]:
        raise ValueError("the number of heads differs")
    assert window_size[1] == 0
    contexts = [[x[a:b] for a, b in _spans(cu_seq_k)] for x in (key, value)]
    return _reference(query, contexts[0], contexts[1], cu_seq_q, window_size[0])


def _varlen_without_windows(  # type: ignore[no-untyped-def]
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False
):
    """An older one, which knows causal attention alone."""
    if query.shape[1] != key.shape[1]:
        raise ValueError("the number of heads differs")
    assert is_causal
    return _reference(
        query, [key[a:b] for a, b in _spans(cu_seq_k)], [value[a:b] for a, b in _spans(cu_seq_k)], cu_seq_q
    )


def _varlen_of_2_13(  # type: ignore[no-untyped-def]
    query,
    key,
    value,
    cu_seq_q,
    cu_seq_k,
    max_q,
    max_k,
    *,
    window_size=(-1, -1),
    enable_gqa=False,
    seqused_k=None,
    block_table=None,
    num_splits=None,
):
    """torch 2.13's, by its documentation: groups of heads, windows, block tables."""
    assert enable_gqa == (query.shape[1] != key.shape[-2])
    assert window_size[1] == 0
    assert num_splits == 1
    if block_table is None:
        contexts = [[x[a:b] for a, b in _spans(cu_seq_k)] for x in (key, value)]
    else:
        assert cu_seq_k is None
        used = list(zip(block_table.tolist(), seqused_k.tolist(), strict=True))
        contexts = [[x[table].flatten(0, 1)[:count] for table, count in used] for x in (key, value)]
    assert max(len(k) for k in contexts[0]) <= max_k
    return _reference(query, contexts[0], contexts[1], cu_seq_q, window_size[0])


def _spans(starts: Any) -> list[tuple[int, int]]:
    return list(itertools.pairwise(starts.tolist()))


def _reference(query: Any, keys: Any, values: Any, starts: Any, left: int = -1) -> Any:
    """Causal from the bottom right, as flash attention counts."""
    import torch

    parts = []
    for (a, b), k, v in zip(_spans(starts), keys, values, strict=True):
        group = query.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, dim=1).transpose(0, 1) for x in (k, v))
        at = torch.arange(len(k[0]) - (b - a), len(k[0]))[:, None]
        seen = torch.arange(len(k[0])) <= at
        if left >= 0:
            seen &= torch.arange(len(k[0])) >= at - left
        score = query[a:b].transpose(0, 1) @ k.transpose(1, 2) * query.shape[-1] ** -0.5
        parts.append((score.masked_fill(~seen, -torch.inf).softmax(-1) @ v).transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize("window", [None, 6])
def test_varlen_attention_is_called_as_documented(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments, gathering and choice of a CUDA run, with the documented behaviour in place of the kernel."""
    import torch
    import torch.nn.attention.varlen as varlen

    from tileq_engine.decoder.attention.choose import _varlen_gathered, _varlen_paged
    from tileq_engine.decoder.attention.probe import fault

    layers = (1,) if window else ()
    config = decoder(sliding_window=window, sliding_layers=layers).config

    def told(make: Any) -> str | None:
        return fault(make, config, torch.device("cpu"), torch.float32, 8)

    monkeypatch.setattr(varlen, "varlen_attn", _varlen_of_2_13)
    assert told(lambda: _varlen_paged(256)) is None
    assert "multiple of 256" in str(told(lambda: _varlen_paged(16)))
    assert told(lambda: _varlen_gathered(False)) is None
    monkeypatch.setattr(varlen, "varlen_attn", _varlen_of_2_11)
    assert "has no varlen_attn with block_table, num_splits, seqused_k" in str(told(lambda: _varlen_paged(256)))
    assert "number of heads differs" in str(told(lambda: _varlen_gathered(False)))
    assert told(lambda: _varlen_gathered(True)) is None
    monkeypatch.setattr(varlen, "varlen_attn", _varlen_without_windows)
    expanded = told(lambda: _varlen_gathered(True))
    assert expanded is None if window is None else "knows no window" in str(expanded)


_TRITON = """
import torch
from tileq_engine.decoder.attention.probe import fault
from tileq_engine.decoder.attention.triton_paged import TritonAttention
from tileq_engine.decoder.config import DecoderConfig
for heads, kv, dim, block, window in ((4, 2, 64, 16, None), (6, 2, 24, 5, None), (4, 4, 16, 16, 7), (40, 1, 16, 8, 3)):
    layers = (3,) if window else ()
    config = DecoderConfig.small(heads=heads, kv_heads=kv, head_dim=dim, sliding_window=window, sliding_layers=layers)
    for dtype in (torch.float32, torch.float16):
        said = fault(TritonAttention, config, torch.device("cpu"), dtype, block)
        assert said is None, (heads, kv, dim, block, window, dtype, said)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed (CPU builds lack it)")
def test_the_triton_kernel_in_tritons_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _TRITON], env=environment, capture_output=True, text=True, check=False)
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("triton 3.6's interpreter makes a number of an array, which numpy 2.4 refuses (2.3 does not)")
    assert done.returncode == 0, done.stderr

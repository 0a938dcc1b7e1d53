"""The block stack against a plain reference, and a short measurement of this machine; needs torch."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tileq_profiling.measure import SMALL_MODEL, measure, read_session
from tileq_profiling.measure.batch import Batch
from tileq_profiling.measure.blocks import BlockStack
from tileq_profiling.profile import load_profile
from tileq_theory.errors import InputError
from tileq_theory.hardware import Model

torch = pytest.importorskip("torch", reason="torch is not installed; the extra [torch] measures this machine")

TINY = Model("tiny", layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, intermediate=48, vocab=50)


def reference(stack, batch, given):
    """Next tokens by loops over sequences and heads; keys and values of earlier tokens come from the stack's cache."""
    m = stack.model
    x = stack._embedding[given["ids"]]
    cos, sin = given["cos"][:, 0], given["sin"][:, 0]

    def norm(v):
        return v / torch.sqrt((v * v).mean(-1, keepdim=True) + 1e-5)

    def turn(v, row):
        a, b = v[: m.head_dim // 2], v[m.head_dim // 2 :]
        return torch.cat([a * cos[row] - b * sin[row], b * cos[row] + a * sin[row]])

    for (qkv_w, out_w, up_w, down_w), cache in zip(stack._blocks, stack._cache, strict=True):
        qkv = norm(x) @ qkv_w.T
        q, k, v = qkv[:, : m.q_size], qkv[:, m.q_size : m.q_size + m.kv_size], qkv[:, m.q_size + m.kv_size :]
        rows = []
        length = batch.history_tokens + batch.chunk_tokens
        for row in range(batch.tokens):
            heads = []
            for head in range(m.heads):
                group = head // (m.heads // m.kv_heads)
                own = slice(group * m.head_dim, (group + 1) * m.head_dim)
                if row < batch.chunk_tokens:
                    old = cache[:, : length * m.kv_size].view(2, m.kv_heads, length, m.head_dim)[
                        :, group, : batch.history_tokens
                    ]
                    keys = [*old[0], *(turn(k[r, own], r) for r in range(row + 1))]
                    values = [*old[1], *(v[r, own] for r in range(row + 1))]
                else:
                    s, at = batch.context_tokens, row - batch.chunk_tokens
                    start = (length if batch.chunk_tokens else 0) * m.kv_size
                    size = batch.decodes * s * m.kv_size
                    old = cache[:, start : start + size].view(2, batch.decodes, m.kv_heads, s, m.head_dim)[
                        :, at, group, : s - 1
                    ]
                    keys, values = [*old[0], turn(k[row, own], row)], [*old[1], v[row, own]]
                query = turn(q[row, head * m.head_dim : (head + 1) * m.head_dim], row)
                weights = torch.softmax(torch.stack(keys) @ query / math.sqrt(m.head_dim), dim=0)
                heads.append(weights @ torch.stack(values))
            rows.append(torch.cat(heads))
        x = x + torch.stack(rows) @ out_w.T
        gate, up = (norm(x) @ up_w.T).chunk(2, dim=-1)
        x = x + (gate / (1 + torch.exp(-gate)) * up) @ down_w.T
    last = ([batch.chunk_tokens - 1] if batch.chunk_tokens else []) + list(range(batch.chunk_tokens, batch.tokens))
    return norm(x[last]) @ stack._head.T


@pytest.mark.parametrize(
    "batch",
    [
        Batch(5, 0),
        Batch(4, 7),
        Batch(decodes=3, context_tokens=6),
        Batch(4, 3, 2, 5),
        Batch(1, 0),
        Batch(decodes=1, context_tokens=1),
    ],
    ids=str,
)
def test_the_stack_is_a_transformer(batch):
    """Logits from float64 weights agree with a loop over heads and keys to rounding."""
    stack = BlockStack(torch, TINY, torch.device("cpu"), torch.float64, kv_tokens=64, layers=2)
    stack._blocks = [tuple(8 * w for w in block) for block in stack._blocks]  # large enough to tell tokens apart
    given = stack.inputs(batch)
    want = reference(stack, batch, given)
    got = []
    head, linear = stack._head, torch.nn.functional.linear

    def keep(x, weight, *rest):
        out = linear(x, weight, *rest)
        if weight is head:
            got.append(out)
        return out

    torch.nn.functional.linear = keep
    try:
        tokens = stack.forward(batch, given)
    finally:
        torch.nn.functional.linear = linear
    torch.testing.assert_close(got[0], want, rtol=1e-5, atol=1e-6)
    assert tokens.tolist() == want.argmax(-1).tolist()
    assert len(tokens) == batch.sequences


def test_a_batch_larger_than_the_cache_is_refused():
    stack = BlockStack(torch, TINY, torch.device("cpu"), torch.float32, kv_tokens=16, layers=1)
    with pytest.raises(InputError, match="does not fit the cache of 16"):
        stack.inputs(Batch(decodes=4, context_tokens=8))


def test_mixtures_of_experts_are_refused():
    moe = Model("moe", layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, intermediate=48, vocab=50, experts=4,
                experts_per_token=2, moe_layers=2, moe_intermediate=16)  # fmt: skip
    with pytest.raises(InputError, match="mixture of experts"):
        BlockStack(torch, moe, torch.device("cpu"), torch.float32, kv_tokens=16, layers=1)


def test_a_short_session_and_its_continuation(tmp_path):
    """Points are kept, not measured again; the profile and its conditions come back from the file."""
    out = tmp_path / "p.csv"
    limits = {"most_tokens": 32, "most_sequences": 4, "longest_context": 64}
    first = measure("cpu", TINY, budget_s=4.0, out=out, progress=False, precision=0.2, **limits)
    journal = tmp_path / "p.csv.points.jsonl"
    before = journal.read_text().splitlines()
    journal.write_text("\n".join(before) + '\n{"what": "batch", "chu')
    second = measure("cpu", TINY, budget_s=2.0, out=out, progress=False, precision=0.2, **limits)
    after = journal.read_text().splitlines()
    assert after[: len(before)] == before
    assert len(second) >= len(first) >= 1
    assert np.all(second.seconds > 0)
    batches = [
        tuple(json.loads(line).get(k) for k in ("chunk", "history", "decodes", "context"))
        for line in after
        if '"batch"' in line
    ]
    assert len(set(batches)) == len(batches)
    kept = load_profile(out)
    np.testing.assert_allclose(kept.seconds, second.seconds)
    c = kept.conditions
    assert (c.model, c.dtype, c.libraries["torch"]) == ("tiny", "fp32", str(torch.__version__))
    assert c.device and any("one torch thread" in note for note in c.notes)
    session = read_session(journal)
    # on a busy machine a figure may not fit its share of so short a budget; another call adds it
    assert set(session.facts) & {"bandwidth_bytes_per_s", "matmul_flops_per_s", "launch_s"}
    assert session.gemm_tokens.size >= 1


def test_a_session_of_another_dtype_does_not_mix(tmp_path):
    out = tmp_path / "p.csv"
    measure("cpu", TINY, budget_s=3.0, out=out, progress=False, precision=0.5, most_tokens=8, longest_context=16)
    with pytest.raises(InputError, match="was begun with dtype"):
        measure("cpu", TINY, budget_s=1.0, out=out, progress=False, dtype="bf16", most_tokens=8, longest_context=16)


def test_fewer_layers_are_scaled(tmp_path):
    p = measure("cpu", TINY, budget_s=3.0, progress=False, precision=0.5, layers=1, most_tokens=8, longest_context=16)
    assert any("scaled from 1 to the model's 2 layers" in note for note in p.conditions.notes)


def test_wrong_arguments_are_refused(tmp_path):
    for wrong, told in (
        ({"device": "tpu"}, "expected 'cpu', 'cuda'"),
        ({"dtype": "int8"}, "cannot be measured"),
        ({"budget_s": 0.0}, "budget_s"),
        ({"out": tmp_path / "x.txt"}, "ending in .csv or .parquet"),
        ({"model": "no-such-model"}, "not in the catalogue"),
    ):
        with pytest.raises(InputError, match=told):
            measure(**{"budget_s": 1.0, **wrong})
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="sees no CUDA device"):
            measure("cuda", budget_s=1.0)


def test_the_small_model_is_a_llama_in_all_parts():
    assert SMALL_MODEL.heads > SMALL_MODEL.kv_heads and not SMALL_MODEL.tied_embeddings

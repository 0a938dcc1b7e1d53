"""Speed of the decoder on the CPU; run with `pytest -m bench tests/bench/test_decoder_speed.py -s`.

One thread, float32, four layers of width 256. Gates compare two things in one process; best of several runs each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.bench
torch = pytest.importorskip("torch", reason="torch is not installed")
PROMPT, OUTPUT, RESIDENTS = 128, 64, 64


def report(line: str) -> None:
    """Show a measured figure where pytest's -s lets it through."""
    sys.stdout.write(line + "\n")


def best_s(action: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def made(attention: str = "auto", blocks: int = 4096) -> Any:
    from tileq_engine.decoder import Decoder, DecoderConfig, random_weights, torch_setup

    report(f"\n{torch_setup(1).to_dict()}")
    config = DecoderConfig.small()
    return Decoder(config, random_weights(config, 1), blocks=blocks, attention=attention)


def decodes(decoder: Any, count: int, context: int) -> Any:
    """Return a batch of `count` decodes with `context` tokens each, on scattered blocks."""
    from tileq_engine.decoder import Member, flat_batch

    held = -(-context // decoder.block_tokens)
    order = np.random.default_rng(0).permutation(decoder.blocks)
    rows = [order[i * held : (i + 1) * held] for i in range(count)]
    return flat_batch([Member([1], context - 1, row) for row in rows], decoder.block_tokens)


def products_s(decoder: Any, rows: int) -> float:
    """Return the time of the forward's matrix products alone: no pass can be faster."""
    *layer, head = decoder.layers.products
    inputs = {n: torch.randn(rows, n) for n in {product.matrix.shape[1] for product in (*layer, head)}}

    def products() -> None:
        for product in (*layer * decoder.config.layers, head):
            product(inputs[product.matrix.shape[1]])

    with torch.inference_mode():
        return best_s(products, 20)


@pytest.mark.parametrize("context", [16, 128, 512])
def test_forward_against_its_matrix_products(context: int) -> None:
    """The compiled attention beats one call per sequence; on short contexts a pass is at most twice its products."""
    decoder = made()
    batch = decodes(decoder, RESIDENTS, context)
    forward, products = best_s(lambda: decoder.forward(batch), 20), products_s(decoder, RESIDENTS)
    portable = made("sdpa")
    other = best_s(lambda: portable.forward(batch), 5)
    report(f"{context} tokens: forward {forward * 1e3:.2f} ms, products {products * 1e3:.2f}, sdpa {other * 1e3:.2f}")
    assert forward < other
    if context == 16:
        assert forward < 2 * products


def test_throughput_against_transformers_static_batch() -> None:
    """Greedy, 64 equal prompts and outputs: the case that static batches like best. Tokens are the same."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from tileq_engine.decoder.weights import parts

    decoder = made()
    config = decoder.config
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            eos_token_id=None,
            pad_token_id=0,
        )
    ).eval()
    model.load_state_dict({p.name: p.tensor for p in parts(config, decoder.weights)})
    prompts = torch.randint(0, config.vocab_size, (RESIDENTS, PROMPT), generator=torch.Generator().manual_seed(3))

    def theirs() -> Any:
        with torch.inference_mode():
            ones = torch.ones_like(prompts)  # else token 0 of a prompt counts as padding
            length = {"max_new_tokens": OUTPUT, "min_new_tokens": OUTPUT}
            return model.generate(prompts, attention_mask=ones, do_sample=False, use_cache=True, **length)[:, PROMPT:]

    same = float((generate(decoder, prompts) == theirs()).all(dim=1).float().mean())
    ours_s, theirs_s = best_s(lambda: generate(decoder, prompts), 3), best_s(theirs, 3)
    tokens = RESIDENTS * OUTPUT
    report(f"{tokens / ours_s:.0f} tokens/s, transformers {tokens / theirs_s:.0f}, ratio {theirs_s / ours_s:.2f}")
    report(f"texts with every token the same: {same:.0%}")
    assert same > 0.9, "rounding may flip a token where two logits lie within 1e-6 of each other: about one in 10^5"
    assert theirs_s > ours_s


def generate(decoder: Any, prompts: Any) -> Any:
    """Prefill in chunks of 512 tokens, then decode all together."""
    from tileq_engine.decoder import Member, SamplingParams, flat_batch, sample

    held = -(-(PROMPT + OUTPUT) // decoder.block_tokens)
    order = np.random.default_rng(1).permutation(decoder.blocks)
    blocks = [order[i * held : (i + 1) * held] for i in range(RESIDENTS)]
    params = [SamplingParams()] * RESIDENTS
    rows, texts = prompts.numpy(), []
    first: list[int] = []
    at_once = 512 // PROMPT
    for i in range(0, RESIDENTS, at_once):
        batch = flat_batch([Member(rows[j], 0, blocks[j]) for j in range(i, i + at_once)], decoder.block_tokens)
        first += sample(decoder.forward(batch), params[:at_once], [PROMPT] * at_once).tolist()
    texts.append(first)
    for step in range(1, OUTPUT):
        members = [Member([t], PROMPT + step - 1, b) for t, b in zip(texts[-1], blocks, strict=True)]
        logits = decoder.forward(flat_batch(members, decoder.block_tokens))
        texts.append(sample(logits, params, [PROMPT + step] * RESIDENTS).tolist())
    return torch.tensor(texts).T

"""Random schedules: given texts cut into chunks, mixed into batches, over scattered blocks. Needs torch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from tileq_engine.decoder.batch import Member, flat_batch
from tileq_engine.decoder.model import Decoder


def random_texts(rng: np.random.Generator, vocab: int, count: int, longest: int) -> list[np.ndarray]:
    return [rng.integers(0, vocab, size=rng.integers(1, longest + 1)) for _ in range(count)]


def scattered_blocks(rng: np.random.Generator, decoder: Decoder, texts: list[np.ndarray]) -> list[np.ndarray]:
    """Give each text blocks of its own, in a random order over the whole pool."""
    order = rng.permutation(decoder.blocks)
    blocks, at = [], 0
    for text in texts:
        need = -(-len(text) // decoder.block_tokens)
        blocks.append(order[at : at + need])
        at += need
    assert at <= decoder.blocks
    return blocks


def random_batches(
    rng: np.random.Generator, texts: list[np.ndarray], blocks: list[np.ndarray], longest_chunk: int
) -> Iterator[tuple[list[Member], list[tuple[int, int]]]]:
    """Yield batches until all texts are through, each with (text, position) of its members' last tokens.

    Chunks have 1 token in a third of the cases (a decode), else a random length.
    """
    done = [0] * len(texts)
    while any(d < len(t) for d, t in zip(done, texts, strict=True)):
        open_ = [i for i in range(len(texts)) if done[i] < len(texts[i])]
        chosen = rng.permutation(open_)[: rng.integers(1, len(open_) + 1)]
        members, ends = [], []
        for i in chosen:
            size = 1 if rng.random() < 1 / 3 else int(rng.integers(1, longest_chunk + 1))
            tokens = texts[i][done[i] : done[i] + size]
            members.append(Member(tokens, done[i], blocks[i]))
            done[i] += len(tokens)
            ends.append((int(i), done[i] - 1))
        yield members, ends


def run_schedule(
    rng: np.random.Generator, decoder: Decoder, texts: list[np.ndarray], longest_chunk: int
) -> dict[tuple[int, int], torch.Tensor]:
    """Return the logits of every chunk's last token, by (text, position); the cache starts full of NaN."""
    decoder.kv.data.fill_(float("nan"))
    blocks = scattered_blocks(rng, decoder, texts)
    seen: dict[tuple[int, int], torch.Tensor] = {}
    for members, ends in random_batches(rng, texts, blocks, longest_chunk):
        logits = decoder.forward(flat_batch(members, decoder.block_tokens, decoder.device))
        assert logits.shape == (len(ends), decoder.config.vocab_size)
        seen.update(zip(ends, logits, strict=True))
    return seen

"""Token histories of all requests in one array: the prompt, then what was generated."""

from __future__ import annotations

__all__ = ["Histories", "prompt_paths", "random_prompts", "shared_prompts"]

from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Int

from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError


class Histories:
    """Tokens of request i at `offset[i]`, `length[i]` of them known so far, `prompt[i]` of those its prompt.

    Examples
    --------
    >>> h = Histories()
    >>> h.add(np.array([5, 6]), room=3)
    0
    >>> h.append(np.array([0]), np.array([9]))
    >>> h.tokens(0).tolist(), h.generated(0).tolist()
    ([5, 6, 9], [9])
    """

    def __init__(self) -> None:
        self.flat = np.zeros(1024, dtype=np.int32)
        self.offset = np.zeros(16, dtype=np.int64)
        self.length = np.zeros(16, dtype=np.int64)
        self.prompt = np.zeros(16, dtype=np.int64)
        self.count = 0
        self._used = 0

    def add(self, prompt: Int[np.ndarray, "prompt"], room: int) -> int:
        """Add a request with its prompt and room for `room` generated tokens; return its index."""
        i = self.count
        need = self._used + prompt.size + room
        if need > self.flat.size:
            self.flat = np.concatenate([self.flat, np.zeros(max(need, self.flat.size), dtype=np.int32)])
        if i == self.offset.size:
            for name in ("offset", "length", "prompt"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
        self.flat[self._used : self._used + prompt.size] = prompt
        self.offset[i], self.length[i], self.prompt[i] = self._used, prompt.size, prompt.size
        self._used = need
        self.count += 1
        return i

    def append(self, requests: Int[np.ndarray, "out"], tokens: Int[np.ndarray, "out"]) -> None:
        """Append one token to each of these requests."""
        self.flat[self.offset[requests] + self.length[requests]] = tokens
        self.length[requests] += 1

    def tokens(self, request: int) -> Int[np.ndarray, "token"]:
        """Return prompt and generated tokens of one request."""
        start = int(self.offset[request])
        return self.flat[start : start + int(self.length[request])].copy()

    def generated(self, request: int) -> Int[np.ndarray, "token"]:
        """Return the generated tokens of one request."""
        return self.tokens(request)[int(self.prompt[request]) :]


def random_prompts(requests: Requests, vocab_size: int, seed: int) -> Iterator[Int[np.ndarray, "_"]]:
    """Yield a prompt of each request's length; a request's tokens depend on the seed and its id alone."""
    for name, length in zip(requests.ids.tolist(), requests.prompt_tokens.tolist(), strict=True):
        yield np.random.default_rng([seed, name]).integers(0, vocab_size, length, dtype=np.int32)


def shared_prompts(requests: Requests, vocab_size: int, seed: int) -> Iterator[Int[np.ndarray, "_"]]:
    """Yield a prompt of each request's length that shares with others what `requests.blocks` says: whole blocks.

    A block's tokens depend on the seed and its node alone, those behind the last whole block on the request's id.
    """
    blocks = requests.blocks
    if blocks is None:
        yield from random_prompts(requests, vocab_size, seed)
        return
    for i, own in enumerate(random_prompts(requests, vocab_size, seed)):
        for k, node in enumerate(blocks.path(i).tolist()[: own.size // blocks.block_tokens]):
            words = np.random.default_rng([seed, node, 1]).integers(0, vocab_size, blocks.block_tokens, dtype=np.int32)
            own[k * blocks.block_tokens : (k + 1) * blocks.block_tokens] = words
        yield own


def prompt_paths(prompts: Iterable[Int[np.ndarray, "_"]], block_tokens: int) -> BlockPaths:
    """Return the paths of the prompts' full blocks: two share a node where all tokens up to its end are the same."""
    rows = []
    for prompt in prompts:
        tokens = np.ascontiguousarray(prompt, dtype=np.int32)
        full = tokens.size // block_tokens
        rows.append([tokens[k * block_tokens : (k + 1) * block_tokens].tobytes() for k in range(full)])
    return BlockPaths.from_lists(rows, block_tokens)


def checked_prompts(
    prompts: Iterable[Int[np.ndarray, "_"]], requests: Requests, vocab_size: int
) -> Iterator[Int[np.ndarray, "_"]]:
    """Yield the prompts given for `requests`; raise `InputError` where length or a token does not fit."""
    for i, prompt in enumerate(prompts):
        tokens = np.asarray(prompt, dtype=np.int64)
        if i >= len(requests) or tokens.size != int(requests.prompt_tokens[i]):
            asked = int(requests.prompt_tokens[i]) if i < len(requests) else 0
            raise InputError(f"prompt {i} has {tokens.size} tokens; request {i} says {asked}")
        if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab_size:
            raise InputError(f"prompt {i} holds a token outside 0..{vocab_size - 1}, the model's vocabulary")
        yield tokens.astype(np.int32)

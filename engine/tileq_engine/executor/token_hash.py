"""A test double of a model: the next token is a hash of the sequence, read back from its own paged cache.

It keeps token and position of every slot it was told to write, and when a token is wanted it walks the member's block
table. A wrong slot, a stale block, a lost swap or a gap in the positions is an error, or another token.
"""

from __future__ import annotations

__all__ = ["TokenHashBackend", "next_token"]

import time
from typing import Any

import numpy as np
from jaxtyping import Int

from tileq_engine.executor.backend import HostBatch, SampleRows, Step
from tileq_theory.errors import InputError

_PRIME = 1_000_003
_WORD = (1 << 61) - 1


def next_token(history: Int[np.ndarray, "token"], vocab_size: int) -> int:
    """Return the token that follows `history`: a hash of all of it.

    Examples
    --------
    >>> next_token(np.array([1, 2]), 100) != next_token(np.array([2, 1]), 100)
    True
    """
    value = 7
    for token in history.tolist():
        value = (value * _PRIME + int(token) + 1) % _WORD
    return value % vocab_size


class TokenHashBackend:
    """Paged cache of (token, position), and a hash for a model.

    Parameters
    ----------
    blocks, block_tokens
        The cache.
    vocab_size, eos_token_ids
        Of the tokens it makes.
    pause_s
        Seconds it sleeps a step, for tests that need an iteration to take time.
    """

    def __init__(
        self,
        blocks: int = 64,
        block_tokens: int = 16,
        *,
        vocab_size: int = 97,
        eos_token_ids: tuple[int, ...] = (),
        pause_s: float = 0.0,
    ) -> None:
        self.blocks, self.block_tokens, self.vocab_size = blocks, block_tokens, vocab_size
        self.eos_token_ids, self.max_positions, self.pause_s = eos_token_ids, None, pause_s
        self._tokens = np.full(blocks * block_tokens, -1, dtype=np.int64)
        self._places = np.full(blocks * block_tokens, -1, dtype=np.int64)
        self.steps = 0

    def step(self, batch: HostBatch, rows: SampleRows) -> Step:
        """Write the batch's tokens where it says, return the hash of each wanted sequence."""
        begun = time.perf_counter()
        self.steps += 1
        if len(np.unique(batch.slots)) != batch.slots.size:
            raise InputError("two tokens of the batch go to one slot")
        self._tokens[batch.slots] = batch.token_ids
        self._places[batch.slots] = batch.positions
        if self.pause_s:
            time.sleep(self.pause_s)
        middle = time.perf_counter()
        tokens = [next_token(self._read(batch, int(m)), self.vocab_size) for m in batch.out_members]
        done = time.perf_counter()
        return Step(np.array(tokens, dtype=np.int64), 0.0, middle - begun, done - middle)

    def _read(self, batch: HostBatch, member: int) -> Int[np.ndarray, "token"]:
        places = np.arange(int(batch.context_tokens[member]))
        slots = batch.block_table[member, places // self.block_tokens].astype(np.int64) * self.block_tokens
        slots += places % self.block_tokens
        if not np.array_equal(self._places[slots], places):
            raise InputError(f"the cache of request {batch.requests[member]} does not hold its tokens in order")
        read: np.ndarray = self._tokens[slots]
        return read

    def copy_out(self, blocks: list[int]) -> Any:
        """Return tokens and positions of the blocks, and forget them on the device."""
        slots = (np.array(blocks)[:, None] * self.block_tokens + np.arange(self.block_tokens)).ravel()
        held = self._tokens[slots].copy(), self._places[slots].copy()
        self._tokens[slots] = self._places[slots] = -1
        return held

    def copy_in(self, held: Any, blocks: list[int]) -> None:
        """Put them into other blocks."""
        slots = (np.array(blocks)[:, None] * self.block_tokens + np.arange(self.block_tokens)).ravel()
        self._tokens[slots], self._places[slots] = held

    def describe(self) -> dict[str, Any]:
        """Return what it is."""
        return {"model": "token hash", "device": "host", "vocab_size": self.vocab_size}

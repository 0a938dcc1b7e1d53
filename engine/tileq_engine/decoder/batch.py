"""One iteration's batch, flattened: chunks of prompts and single decodes in one row of tokens."""

from __future__ import annotations

__all__ = ["FlatBatch", "Member", "flat_batch"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int

from tileq_theory.errors import InputError


@dataclass(frozen=True, slots=True)
class Member:
    """What one sequence puts into an iteration.

    Parameters
    ----------
    tokens
        Ids of its new tokens: a chunk of the prompt, or the last token delivered.
    context_tokens
        Tokens of it in the cache before this iteration.
    blocks
        Its physical blocks in order; they must hold context and new tokens.
    logits
        Whether the logits after its last token are wanted (an unfinished chunk does not need them).
    """

    tokens: Sequence[int] | Int[np.ndarray, "token"]
    context_tokens: int
    blocks: Sequence[int] | Int[np.ndarray, "block"]
    logits: bool = True


@dataclass(frozen=True, slots=True)
class FlatBatch:
    """Tensors of one iteration, on the device, and what the host must know of them without asking the device.

    `slots` are physical: block * block_tokens + offset. `context_tokens` counts the KV after this batch. `last_rows`
    are the rows whose logits are wanted, in the order of the members that want them.
    """

    token_ids: Int[torch.Tensor, "token"]
    positions: Int[torch.Tensor, "token"]
    slots: Int[torch.Tensor, "token"]
    query_start: Int[torch.Tensor, "start"]
    context_tokens: Int[torch.Tensor, "seq"]
    block_table: Int[torch.Tensor, "seq block"]
    last_rows: Int[torch.Tensor, "out"]
    host_query_start: Int[np.ndarray, "start"]
    host_context_tokens: Int[np.ndarray, "seq"]

    @property
    def tokens(self) -> int:
        """Rows of the batch."""
        return int(self.host_query_start[-1])

    @property
    def sequences(self) -> int:
        """Members of the batch."""
        return len(self.host_context_tokens)

    @property
    def max_query_tokens(self) -> int:
        """Longest chunk."""
        return int(np.diff(self.host_query_start).max())

    @property
    def max_context_tokens(self) -> int:
        """Longest context, this batch included."""
        return int(self.host_context_tokens.max())

    @property
    def decode_only(self) -> bool:
        """Whether every member brings one token."""
        return self.tokens == self.sequences


def flat_batch(members: Sequence[Member], block_tokens: int = 16, device: torch.device | str = "cpu") -> FlatBatch:
    """Flatten `members`; one copy to the device.

    Examples
    --------
    >>> b = flat_batch([Member([5, 6, 7], 0, [9]), Member([8], 16, [4, 2])], block_tokens=16)
    >>> b.slots.tolist(), b.positions.tolist(), b.last_rows.tolist()
    ([144, 145, 146, 32], [0, 1, 2, 16], [2, 3])
    """
    if not members:
        raise InputError("a batch without members; give at least one")
    count = np.array([len(m.tokens) for m in members])
    before = np.array([m.context_tokens for m in members])
    held = np.array([len(m.blocks) for m in members])
    _check(count, before, held, block_tokens)
    start = np.zeros(len(members) + 1, dtype=np.int32)
    np.cumsum(count, out=start[1:])
    table = np.zeros((len(members), int(held.max())), dtype=np.int32)
    for row, m in zip(table, members, strict=True):
        row[: len(m.blocks)] = m.blocks
    sequence = np.repeat(np.arange(len(members)), count)
    position = np.arange(int(start[-1])) - np.repeat(start[:-1] - before, count)
    slot = table[sequence, position // block_tokens].astype(np.int64) * block_tokens + position % block_tokens
    wanted = np.flatnonzero(np.array([m.logits for m in members]))
    context = (before + count).astype(np.int32)
    flat = np.concatenate([np.asarray(m.tokens, dtype=np.int64) for m in members])
    last = start[1:][wanted].astype(np.int64) - 1
    ids, positions, slots, rows = _to_device((flat, position.astype(np.int64), slot, last), device)
    query_start, contexts, blocks = _to_device((start, context, table), device)
    return FlatBatch(ids, positions, slots, query_start, contexts, blocks, rows, start, context)


def _check(
    count: Int[np.ndarray, "seq"], before: Int[np.ndarray, "seq"], held: Int[np.ndarray, "seq"], block_tokens: int
) -> None:
    if (count < 1).any():
        raise InputError(f"member {int(np.argmin(count))} brings no token; expected at least one")
    if (before < 0).any():
        raise InputError(
            f"member {int(np.argmin(before))} has {int(before.min())} tokens of context; expected 0 or more"
        )
    short = np.flatnonzero(before + count > held * block_tokens)
    if len(short):
        i = int(short[0])
        raise InputError(
            f"member {i} holds {int(held[i])} blocks of {block_tokens} tokens and needs room for "
            f"{int(before[i] + count[i])}; give it more blocks"
        )


def _to_device(arrays: Sequence[np.ndarray], device: torch.device | str) -> list[torch.Tensor]:
    """Return the arrays (of one type) as tensors on the device, by one copy; no wait on CUDA."""
    if torch.device(device).type == "cpu":
        return [torch.from_numpy(a) for a in arrays]
    whole = torch.from_numpy(np.concatenate([a.ravel() for a in arrays]))
    if torch.device(device).type == "cuda":
        whole = whole.pin_memory()
    moved = whole.to(device, non_blocking=True)
    pieces = moved.split([a.size for a in arrays])
    return [p.view(a.shape) for p, a in zip(pieces, arrays, strict=True)]

"""What an executor asks of a model: run one flat batch, and move blocks to the host and back.

`DecoderBackend` (a real model through torch) and `TokenHashBackend` (a test double) have this interface. Everything in
a batch is a numpy array on the host; the backend brings it to its device.
"""

from __future__ import annotations

__all__ = ["Backend", "HostBatch", "SampleRows", "Step"]

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True, slots=True)
class HostBatch:
    """One batch, flattened: every member's new tokens one after another.

    Parameters
    ----------
    requests
        Who the members are, for messages.
    token_ids, positions, slots
        Of each new token: its id, its place in its sequence, where its KV goes (block * block_tokens + offset).
    query_start
        Where each member's tokens begin, and the end.
    context_tokens
        KV of each member after this batch.
    block_table
        Physical blocks of each member in order; what lies beyond its own is 0.
    last_rows
        Rows whose logits are wanted: the last token of each member that gets a token.
    out_members, out_requests
        Which member each of them belongs to, and which request that is.
    """

    requests: Int[np.ndarray, "member"]
    token_ids: Int[np.ndarray, "token"]
    positions: Int[np.ndarray, "token"]
    slots: Int[np.ndarray, "token"]
    query_start: Int[np.ndarray, "bound"]
    context_tokens: Int[np.ndarray, "member"]
    block_table: Int[np.ndarray, "member block"]
    last_rows: Int[np.ndarray, "out"]
    out_members: Int[np.ndarray, "out"]
    out_requests: Int[np.ndarray, "out"]


@dataclass(frozen=True, slots=True)
class SampleRows:
    """How the token of each wanted row is drawn; all temperatures 0 is `greedy`: every row takes its most likely token.

    `seeds` and `steps` (how many tokens the request has been given) are the request's own, so that what is drawn does
    not depend on who shares the batch.
    """

    temperature: Float[np.ndarray, "out"]
    top_p: Float[np.ndarray, "out"]
    top_k: Int[np.ndarray, "out"]
    seeds: Int[np.ndarray, "out"]
    steps: Int[np.ndarray, "out"]
    greedy: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What a batch gave, and where its seconds went.

    `launch_s` until everything was handed to the device, `compute_s` until the device had finished (on a CPU the
    forward itself), `sample_s` for the choice of tokens on the host.
    """

    tokens: Int[np.ndarray, "out"]
    launch_s: float
    compute_s: float
    sample_s: float


@runtime_checkable
class Backend(Protocol):
    """A model with a paged KV cache."""

    blocks: int
    block_tokens: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_positions: int | None

    def step(self, batch: HostBatch, rows: SampleRows) -> Step:
        """Run the batch, write its KV, return the next token of each wanted row."""
        ...

    def copy_out(self, blocks: list[int]) -> Any:
        """Return the contents of these blocks, in host memory."""
        ...

    def copy_in(self, held: Any, blocks: list[int]) -> None:
        """Put contents that `copy_out` returned into these blocks."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return model, device and kernels as plain JSON data."""
        ...

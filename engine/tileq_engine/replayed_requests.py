"""Recorded requests in their own order, with their blocks: a prefix cache needs who came after whom."""

from __future__ import annotations

__all__ = ["ReplayedRequests"]

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.clock import PS_PER_S
from tileq_engine.experiment_streams import Streams
from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.requests import Requests, check_span
from tileq_theory.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedRequests:
    """A stretch of a trace for each replication: consecutive requests from a random one on, around its end.

    Parameters
    ----------
    prompt_tokens, output_tokens
        Lengths.
    arrival_s
        Seconds, never falling, or None: then arrivals are Poisson.
    blocks
        Paths of full blocks.
    name
        For tables.
    """

    prompt_tokens: Int[np.ndarray, "request"]
    output_tokens: Int[np.ndarray, "request"]
    arrival_s: Float[np.ndarray, "request"] | None
    blocks: BlockPaths
    name: str = "trace"

    @classmethod
    def of(cls, trace: Any) -> ReplayedRequests:
        """Return the replay of a trace that was read with its block identities; partly filled blocks are left out."""
        if trace.blocks is None:
            raise InputError(f"{trace.source} has no block identities (hash_ids), so that no prefix can be known again")
        size = trace.blocks.block_tokens
        full = trace.prompt_tokens // size
        paths = BlockPaths.of(trace.blocks.ids, trace.blocks.offsets, size, full_blocks=full)
        return cls(trace.prompt_tokens, trace.output_tokens, trace.arrival_s, paths, trace.source)

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def draw(self, count: int, streams: Streams, rate_per_s: float | None) -> Requests:
        """Return `count` consecutive requests; their gaps are stretched to the rate, if one is given.

        The first replication begins with the first request, the others at a random one. No request comes twice: its
        prefix would be found for no other reason.
        """
        if count > len(self):
            raise InputError(
                f"{self.name} has {len(self)} requests with blocks and {count} are asked for; repeating them would find "
                "them in the cache: ask for fewer"
            )
        begin = 0 if streams.replication == 0 else int(streams.rng("trace").integers(len(self)))
        rows = (begin + np.arange(count)) % len(self)
        arrival = self._arrivals(rows, streams, rate_per_s)
        check_span(arrival, count, rate_per_s)
        return Requests.from_arrays(
            arrival_ps=np.rint(arrival * PS_PER_S).astype(np.int64),
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            blocks=self.blocks.take(rows),
        )

    def _arrivals(
        self, rows: Int[np.ndarray, "row"], streams: Streams, rate_per_s: float | None
    ) -> Float[np.ndarray, "row"]:
        span = 0.0 if self.arrival_s is None else float(self.arrival_s[-1] - self.arrival_s[0])
        if self.arrival_s is None or span == 0.0:
            if rate_per_s is None:
                raise InputError(f"{self.name} records no arrivals; give a rate")
            return np.asarray(np.cumsum(streams.rng("arrivals").exponential(1.0, len(rows))) / rate_per_s)
        mean = span / (len(self) - 1)
        gaps = np.diff(self.arrival_s, append=self.arrival_s[-1] + mean)[rows]
        moments = np.concatenate([np.zeros(1), np.cumsum(gaps[:-1])])
        return np.asarray(moments if rate_per_s is None else moments / (rate_per_s * mean))

    def to_dict(self) -> dict[str, Any]:
        """Return name, size and a digest of lengths, arrivals and blocks."""
        told = hashlib.sha256()
        for column in (self.prompt_tokens, self.output_tokens, self.arrival_s, self.blocks.offsets, self.blocks.nodes):
            told.update(b"none" if column is None else np.ascontiguousarray(column).tobytes())
        return {
            "kind": "replay",
            "name": self.name,
            "requests": len(self),
            "block_tokens": self.blocks.block_tokens,
            "digest": told.hexdigest()[:16],
        }

"""What a node may not exceed: the right-hand sides of the capacity program."""

from __future__ import annotations

__all__ = ["MOST_BATCH_TOKENS", "Limits"]

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, positive, positive_int
from tileq_theory.iteration_time import IterationTime

MOST_NODES = 10**9
MOST_BATCH_TOKENS = 10**9  # tokens; no engine forms larger batches, and sums over chunks stay exact below


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one node and the number of equal nodes.

    Parameters
    ----------
    max_batch_tokens
        n_max, tokens: the largest batch considered.
    max_num_seqs
        N, sequences in a batch; None: no limit but the batch size.
    kv_tokens
        M, KV tokens that fit; None: no limit.
    tbt_s
        T, seconds: no iteration longer than this; None: no limit.
    nodes
        R, equal nodes among which requests are split.
    couple_reads
        Whether KV reads are tied to the decodes of the same batch (see `coefficients`); False gives the rows of the
        specification as printed, a looser bound.
    """

    max_batch_tokens: int = 8192
    max_num_seqs: int | None = None
    kv_tokens: float | None = None
    tbt_s: float | None = None
    nodes: int = 1
    couple_reads: bool = True

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "max_batch_tokens", positive_int("max_batch_tokens", self.max_batch_tokens))
        if self.max_batch_tokens > MOST_BATCH_TOKENS:
            raise InputError(f"max_batch_tokens is {self.max_batch_tokens}; expected at most {MOST_BATCH_TOKENS}")
        put(self, "nodes", positive_int("nodes", self.nodes))
        if self.nodes > MOST_NODES:
            raise InputError(f"nodes is {self.nodes}; expected at most {MOST_NODES}")
        if self.max_num_seqs is not None:
            put(self, "max_num_seqs", positive_int("max_num_seqs", self.max_num_seqs))
        if self.kv_tokens is not None:
            put(self, "kv_tokens", positive("kv_tokens", self.kv_tokens))
        if self.tbt_s is not None:
            put(self, "tbt_s", positive("tbt_s", self.tbt_s))

    def with_(self, **changes: Any) -> Limits:
        """Return a copy with the named limits changed."""
        return replace(self, **changes)

    def check(self, time: IterationTime, demand: Demand) -> None:
        """Raise `InputError` for limits under which some request can never be served."""
        if self.tbt_s is not None:
            shortest = float(time.tau_s(1))
            if self.tbt_s < shortest:
                raise InputError(
                    f"the TBT limit is {self.tbt_s:g} s, but the shortest possible iteration (one token) takes "
                    f"{shortest:g} s; raise the limit above it or use a faster device"
                )
        longest = demand.longest_context_tokens
        if self.kv_tokens is not None and longest != float("inf") and longest > self.kv_tokens:
            raise InputError(
                f"the longest request needs {longest:g} KV tokens, but only {self.kv_tokens:g} fit; "
                "such requests can never be served: cap the lengths, use more memory, or a smaller KV dtype"
            )

    def check_classes(self, time: IterationTime, demands: Mapping[str, Demand]) -> None:
        """Raise `InputError` naming the first class none of whose requests can ever be served.

        The demand of a mix cannot tell: its shortest context is that of the class with the shortest prompts. Nor does
        the program: it would let a decode that outlasts the TBT limit happen in fractions of one an iteration.
        """
        for name, demand in demands.items():
            try:
                self.check(time, demand)
                self._check_shortest_decode(time, demand)
            except InputError as error:
                raise InputError(f"class {name}: {error}" if len(demands) > 1 else str(error)) from None

    def _check_shortest_decode(self, time: IterationTime, demand: Demand) -> None:
        """Raise when even the decode with the shortest context, alone in its batch, outlasts the TBT limit."""
        if self.tbt_s is None or demand.decode_tokens <= 0:
            return
        context = demand.shortest_context_tokens
        shortest = float(time(1, 0.0, context, 1))
        if self.tbt_s < shortest:
            raise InputError(
                f"the TBT limit is {self.tbt_s:g} s, but one decode alone takes {shortest:g} s, reading a context of "
                f"{context:g} tokens; such requests can never be served: raise the limit or use a faster device"
            )

    def to_dict(self) -> dict[str, object]:
        """Return the limits as plain data."""
        return {
            "max_batch_tokens": self.max_batch_tokens,
            "max_num_seqs": self.max_num_seqs,
            "kv_tokens": self.kv_tokens,
            "tbt_s": self.tbt_s,
            "nodes": self.nodes,
            "couple_reads": self.couple_reads,
        }

"""A profile: one row per measured batch, its composition and its time."""

from __future__ import annotations

__all__ = ["Phase", "Profile", "Scope"]

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from tileq_profiling.profile.columns import amounts, check_batches, checked_seconds, counts
from tileq_profiling.profile.conditions import Conditions
from tileq_theory.errors import InputError

Scope = Literal["iteration", "layer operators"]
Phase = Literal["prefill", "decode", "mixed", "unknown"]
COMPOSITION = ("tokens", "pairs", "kv_tokens", "sequences")


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured iteration times with their conditions; make one with `Profile.of`.

    Parameters
    ----------
    tokens
        n, tokens through the linear layers (above 0).
    pairs
        A, query-key pairs of prefill attention: a chunk of c tokens after h cached ones has c (h + (c + 1)/2).
    kv_tokens
        K, KV tokens read by decodes.
    sequences
        m, sequences in the batch.
    seconds
        Measured time, seconds (above 0).
    repeats
        Measurements behind each time (1 where each row is one iteration).
    prefill_tokens
        Prefill tokens of each batch; NaN where the split is not known.
    unknown
        Columns among pairs, kv_tokens and sequences that the source does not tell; they hold 0 and are not fitted.
    scope
        "iteration": whole iterations as an engine ran them; "layer operators": put together from kernels, so that
        launches and host time are missing unless they were added.
    conditions
        Device, model, versions.

    Examples
    --------
    >>> p = Profile.of(tokens=[1, 256], seconds=[0.02, 0.03], sequences=[1, 1], prefill_tokens=[0, 256])
    >>> p.phase.tolist(), p.unknown
    (['decode', 'prefill'], ('pairs', 'kv_tokens'))
    """

    tokens: Float[np.ndarray, "point"]
    pairs: Float[np.ndarray, "point"]
    kv_tokens: Float[np.ndarray, "point"]
    sequences: Float[np.ndarray, "point"]
    seconds: Float[np.ndarray, "point"]
    repeats: Int[np.ndarray, "point"]
    prefill_tokens: Float[np.ndarray, "point"]
    unknown: tuple[str, ...] = ()
    scope: Scope = "iteration"
    conditions: Conditions = field(default=Conditions())

    @classmethod
    def of(
        cls,
        *,
        tokens: ArrayLike,
        seconds: ArrayLike,
        pairs: ArrayLike | None = None,
        kv_tokens: ArrayLike | None = None,
        sequences: ArrayLike | None = None,
        repeats: ArrayLike | None = None,
        prefill_tokens: ArrayLike | None = None,
        scope: Scope = "iteration",
        conditions: Conditions | None = None,
    ) -> Profile:
        """Return a profile of the given columns; None for a column that the source does not tell.

        Raises
        ------
        InputError
            No row, columns of different lengths, NaN, infinite or negative numbers, times of 0, a prefill part larger
            than its batch; the message names column and row.
        """
        if scope not in ("iteration", "layer operators"):
            raise InputError(f"profile scope is {scope!r}; expected 'iteration' or 'layer operators'")
        n = amounts("tokens", tokens)
        if n.size == 0:
            raise InputError("the profile holds no measurement; expected at least one iteration with its time")
        given = {"pairs": pairs, "kv_tokens": kv_tokens, "sequences": sequences}
        filled = {k: np.zeros(n.size) if v is None else amounts(k, v, n.size) for k, v in given.items()}
        prefill = (
            np.full(n.size, np.nan)
            if prefill_tokens is None
            else amounts("prefill_tokens", prefill_tokens, n.size, missing=True)
        )
        check_batches(n, prefill)
        return cls(
            tokens=n,
            **filled,
            seconds=checked_seconds(seconds, n.size),
            repeats=counts("repeats", np.ones(n.size) if repeats is None else repeats, n.size),
            prefill_tokens=prefill,
            unknown=tuple(k for k, v in given.items() if v is None),
            scope=scope,
            conditions=conditions or Conditions(),
        )

    def __len__(self) -> int:
        return int(self.tokens.size)

    @property
    def phase(self) -> np.ndarray:
        """Phase of each row: prefill, decode, mixed, or unknown where the split is not known."""
        known = ~np.isnan(self.prefill_tokens)
        p = np.where(known, self.prefill_tokens, 0.0)
        return np.select([~known, p <= 0, p >= self.tokens], ["unknown", "decode", "prefill"], default="mixed")

    @property
    def compositions(self) -> Float[np.ndarray, "point 4"]:
        """(n, A, K, m) of each row."""
        return np.column_stack([getattr(self, name) for name in COMPOSITION])

    def take(self, which: Bool[np.ndarray, "point"] | Int[np.ndarray, "row"] | Sequence[int]) -> Profile:
        """Return the profile of some rows (a mask or row numbers)."""
        rows = np.asarray(which)
        names = (*COMPOSITION, "seconds", "repeats", "prefill_tokens")
        if rows.size == 0 or (rows.dtype == bool and not rows.any()):
            raise InputError("no row of the profile was taken; expected at least one")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def with_(self, **changes: Any) -> Profile:
        """Return a copy with scope or conditions changed."""
        wrong = sorted(set(changes) - {"scope", "conditions"})
        if wrong:
            raise InputError(f"with_ changes scope or conditions; {wrong[0]!r} was given")
        return replace(self, **changes)

    @staticmethod
    def join(profiles: Sequence[Profile]) -> Profile:
        """Return the rows of several profiles of one scope; a column unknown in any of them is unknown in the whole."""
        if not profiles:
            raise InputError("no profile was given; expected at least one")
        scopes = {p.scope for p in profiles}
        if len(scopes) > 1:
            raise InputError("profiles of whole iterations and of layer operators were given together; fit them apart")
        names = (*COMPOSITION, "seconds", "repeats", "prefill_tokens")
        columns: dict[str, Any] = {name: np.concatenate([getattr(p, name) for p in profiles]) for name in names}
        unknown = tuple(sorted({u for p in profiles for u in p.unknown}))
        columns.update({name: np.zeros(columns["tokens"].size) for name in unknown})
        return replace(profiles[0], **columns, unknown=unknown)

r"""The rows of a fit: batches, times, what each residual is divided by, and which rows measure the same batch.

A coefficient vector is theta = (c, w, a, beta, e, k, s) in the order of `NAMES`. For a tile b and a split at N tokens
(the rows of at most N tokens lie on the floor) the modelled time is linear in theta,

    t = c + w [n <= N] + (a ceil(n/b) + beta n) [n > N] + e A + k K + s m,

and a residual is (t - y)/scale: relative, with the scale close to y.
"""

from __future__ import annotations

__all__ = ["NAMES", "Rows", "design", "phase_weights", "predict"]

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from tileq_profiling.profile.table import Profile

NAMES = ("launch_s", "weight_floor_s", "tile_s", "token_s", "pair_s", "kv_token_s", "sequence_s")
C, W, A, BETA, E, K, S = range(7)
_HEAVIEST = 20.0


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows sorted by tokens.

    Parameters
    ----------
    tokens, pairs, kv_tokens, sequences
        n, A, K, m of each row.
    seconds
        y, measured times.
    scale
        What a residual is divided by, seconds.
    group
        Number of the distinct batch a row measures: rows of one batch are held out together.
    weight
        How much the row's loss counts; 1 on average.
    """

    tokens: Float[np.ndarray, "row"]
    pairs: Float[np.ndarray, "row"]
    kv_tokens: Float[np.ndarray, "row"]
    sequences: Float[np.ndarray, "row"]
    seconds: Float[np.ndarray, "row"]
    scale: Float[np.ndarray, "row"]
    group: Int[np.ndarray, "row"]
    weight: Float[np.ndarray, "row"]

    @classmethod
    def of(cls, profile: Profile, weights: Float[np.ndarray, "point"] | None = None) -> Rows:
        """Return the profile's rows with their own times as scale and the weights (None: `phase_weights`)."""
        order = np.argsort(profile.tokens, kind="stable")
        composition = profile.compositions[order]
        _, group = np.unique(composition, axis=0, return_inverse=True)
        seconds = profile.seconds[order]
        n, pairs, kv_tokens, sequences = composition.T.copy()
        weight = (phase_weights(profile.phase) if weights is None else weights)[order]
        return cls(
            n, pairs, kv_tokens, sequences, seconds, seconds, group.reshape(-1).astype(np.int64), weight / weight.mean()
        )

    def __len__(self) -> int:
        return int(self.tokens.size)

    def take(self, which: Bool[np.ndarray, "row"] | Int[np.ndarray, "some"]) -> Rows:
        """Return some rows (a mask, or row numbers in any order: they are sorted by tokens again)."""
        index = np.flatnonzero(which) if which.dtype == bool else np.sort(which)
        return replace(self, **{name: getattr(self, name)[index] for name in self.__slots__})

    def scaled_by(self, scale: Float[np.ndarray, "row"]) -> Rows:
        """Return the same rows with another scale."""
        return replace(self, scale=scale)


def phase_weights(phase: np.ndarray) -> Float[np.ndarray, "point"]:
    """Return weights under which prefill, decode and mixed rows count the same in all, none more than 20 times another.

    Which batches a profile holds is the measurer's choice; 70 decodes among 6000 mixed batches must not be given up.
    """
    names, which, count = np.unique(phase, return_inverse=True, return_counts=True)
    share = len(phase) / (names.size * count)
    weights: np.ndarray = np.minimum(share, _HEAVIEST * share.min())[which.reshape(-1)]
    return weights


def design(
    rows: Rows, tile_tokens: int | None, split_tokens: float, active: Sequence[int]
) -> Float[np.ndarray, "row coefficient"]:
    """Return the columns of `active` coefficients, each over the row's scale (tile None: a's column is 0)."""
    on_floor = rows.tokens <= split_tokens
    tiles = np.zeros(len(rows)) if tile_tokens is None else np.ceil(rows.tokens / tile_tokens)
    columns = (
        np.ones(len(rows)),
        on_floor.astype(float),
        np.where(on_floor, 0.0, tiles),
        np.where(on_floor, 0.0, rows.tokens),
        rows.pairs,
        rows.kv_tokens,
        rows.sequences,
    )
    matrix: np.ndarray = np.column_stack([columns[j] for j in active]) / rows.scale[:, None]
    return matrix


def predict(rows: Rows, tile_tokens: int | None, theta: Float[np.ndarray, "7"]) -> Float[np.ndarray, "row"]:
    """Return the family's times for the coefficients, with the floor where max puts it."""
    tiles = 0.0 if tile_tokens is None else np.ceil(rows.tokens / tile_tokens)
    linear = np.maximum(theta[W], theta[A] * tiles + theta[BETA] * rows.tokens)
    out: np.ndarray = theta[C] + linear + theta[E] * rows.pairs + theta[K] * rows.kv_tokens + theta[S] * rows.sequences
    return out

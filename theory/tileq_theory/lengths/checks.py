"""Checks that the length laws share: whole numbers, weights and probabilities, each error naming its entry."""

from __future__ import annotations

__all__ = [
    "LARGEST_TOKENS",
    "Numbers",
    "chunk_size",
    "shares_of",
    "token_count",
    "vector",
    "weighted_sum",
    "weights_of",
    "whole_numbers",
]

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from tileq_theory.errors import InputError, positive_int

Numbers: TypeAlias = ArrayLike | Sequence[Any]  # tuples too, which numpy's own alias leaves out at run time

LARGEST_TOKENS = 2**52  # beyond it a float no longer holds every whole number
_FSUM_SIZE = 256


def token_count(name: str, value: float) -> int:
    """Return `value` as an int if it is a whole number from 1 to 2^52, else raise `InputError` naming it."""
    count = positive_int(name, value, math.inf)
    if count > LARGEST_TOKENS:
        raise InputError(f"{name} is {value!r}; expected at most 2^52 tokens")
    return count


def chunk_size(chunk_tokens: int) -> int:
    """Return a chunk size that 64-bit numbers hold; beyond 2^52 tokens every prompt is one chunk anyway."""
    return min(positive_int("chunk_tokens", chunk_tokens, math.inf), LARGEST_TOKENS)


def vector(name: str, values: Numbers) -> Float[np.ndarray, "row"]:
    """Return `values` as a non-empty 1-D float array of finite numbers, else raise `InputError` naming the row."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name} holds something that is not a number; expected numbers") from None
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{name} has shape {array.shape}; expected a 1-D array with at least one entry")
    bad = ~np.isfinite(array)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{name}, row {row}: {array[row]}; expected a finite number")
    return array


def whole_numbers(name: str, values: Numbers, least: int = 1) -> Int[np.ndarray, "row"]:
    """Return `values` as int64 if all are whole and at least `least`, else raise `InputError` naming the row."""
    array = vector(name, values)
    bad = (array < least) | (array != np.floor(array)) | (array > LARGEST_TOKENS)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{name}, row {row}: {array[row]:g}; expected a whole number of tokens, {least} or more")
    return array.astype(np.int64)


def weights_of(name: str, weights: Numbers | None, size: int) -> Float[np.ndarray, "row"]:
    """Return `weights` scaled to sum 1 (equal ones for None); all 0 or more, not all 0, `size` of them."""
    if weights is None:
        return np.full(size, 1.0 / size)
    array = vector(name, weights)
    if array.size != size:
        raise InputError(f"{name} has {array.size} entries; expected {size}, one for each value")
    if (array < 0).any():
        row = int(np.argmax(array < 0))
        raise InputError(f"{name}, row {row}: {array[row]:g}; expected 0 or more")
    # the largest first: the sum of many huge weights would overflow
    scaled = array / array.max() if array.max() > 0 else array
    total = weighted_sum(scaled, np.ones(size))
    if total <= 0:
        raise InputError(f"{name} are all 0; expected at least one above 0")
    return np.asarray(scaled / total)


def shares_of(shares: Iterable[float], size: int) -> tuple[float, ...]:
    """Return class shares scaled to sum 1, as a tuple."""
    return tuple(float(w) for w in weights_of("shares", list(shares), size))


def weighted_sum(weights: Float[np.ndarray, "row"], values: Float[np.ndarray, "row"]) -> float:
    """Return sum w x: exactly rounded for short arrays, pairwise (error some 1e-16 log n) for long ones."""
    product = weights * values
    return math.fsum(product.tolist()) if product.size <= _FSUM_SIZE else float(product.sum())

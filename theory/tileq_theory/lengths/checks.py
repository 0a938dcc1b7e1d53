"""Checks that the length laws share: whole numbers, weights and probabilities, each error naming its entry."""

from __future__ import annotations

__all__ = ["shares_of", "weighted_sum", "weights_of", "whole_numbers"]

import math
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from tileq_theory.errors import InputError

LARGEST_TOKENS = 2**52  # beyond it a float no longer holds every whole number
_FSUM_SIZE = 4096


def vector(name: str, values: ArrayLike) -> Float[np.ndarray, "row"]:
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


def whole_numbers(name: str, values: ArrayLike, least: int = 1) -> Int[np.ndarray, "row"]:
    """Return `values` as int64 if all are whole and at least `least`, else raise `InputError` naming the row."""
    array = vector(name, values)
    bad = (array < least) | (array != np.floor(array)) | (array > LARGEST_TOKENS)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{name}, row {row}: {array[row]:g}; expected a whole number of tokens, {least} or more")
    return array.astype(np.int64)


def weights_of(name: str, weights: ArrayLike | None, size: int) -> Float[np.ndarray, "row"]:
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

"""Columns of numbers, checked: the message names the column, the row and what to do."""

from __future__ import annotations

__all__ = ["amounts", "check_batches", "checked_seconds", "counts"]

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from tileq_theory.errors import InputError


def _floats(name: str, given: ArrayLike, rows: int | None) -> np.ndarray:
    try:
        column = np.array(given, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"profile column {name} is not a list of numbers") from None
    if column.ndim == 0 and rows is not None:
        column = np.full(rows, float(column))
    if column.ndim != 1:
        raise InputError(f"profile column {name} has {column.ndim} dimensions; expected one number a row")
    if rows is not None and column.size != rows:
        raise InputError(f"profile column {name} has {column.size} rows, tokens has {rows}; expected as many")
    return column


def _reject(name: str, column: np.ndarray, bad: np.ndarray, expected: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"profile row {row}: {name} is {column[row]:g} ({int(bad.sum())} such rows); expected {expected}; "
            "drop such rows or mend them at the source"
        )


def amounts(
    name: str, given: ArrayLike, rows: int | None = None, *, missing: bool = False
) -> Float[np.ndarray, "point"]:
    """Return a column of finite numbers of 0 or more; NaN is let through when `missing`."""
    column = _floats(name, given, rows)
    unusable = ~np.isfinite(column) & ~(np.isnan(column) & missing)
    _reject(name, column, unusable, "a finite number")
    _reject(name, column, column < 0, "0 or more")
    return column


def checked_seconds(given: ArrayLike, rows: int) -> Float[np.ndarray, "point"]:
    """Return a column of finite times above 0."""
    column = amounts("seconds", given, rows)
    _reject("seconds", column, column == 0, "a time above 0 s (an iteration that took no time was not measured)")
    return column


def counts(name: str, given: ArrayLike, rows: int) -> Int[np.ndarray, "point"]:
    """Return a column of whole numbers of at least 1."""
    column = amounts(name, given, rows)
    _reject(name, column, (column < 1) | (column != np.round(column)), "a whole number of at least 1")
    return column.astype(np.int64)


def check_batches(tokens: Float[np.ndarray, "point"], prefill: Float[np.ndarray, "point"]) -> None:
    """Raise `InputError` for empty batches and for prefill parts larger than their batch."""
    _reject("tokens", tokens, tokens <= 0, "at least one token (an empty iteration tells nothing)")
    _reject("prefill_tokens", prefill, prefill > tokens, "at most the batch's tokens")

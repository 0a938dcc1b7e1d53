"""The most probable token of each row, as a plain function that `sampling` compiles for the CPU."""

from __future__ import annotations

__all__ = ["greedy_rows"]

import numpy as np
from jaxtyping import Int


def greedy_rows(bits: Int[np.ndarray, "out vocab"], tokens: Int[np.ndarray, "out"]) -> int:
    """Write the place of each row's largest logit to `tokens`, the first of equals; -1 where one is not finite.

    `bits` are the float32 logits read as whole numbers. A float is neither infinite nor NaN if its exponent's bits are
    not all set; and floats are in the order of their bits once those below the sign of the negative ones are turned
    over. So both are maxima of whole numbers, which, unlike a maximum that must look out for NaN, run on vectors.
    Return how many rows are not finite.
    """
    bad = 0
    for row in range(len(bits)):
        size = np.int32(0)
        top = np.int32(-2147483648)
        for j in range(bits.shape[1]):
            b = bits[row, j]
            size = max(size, b & np.int32(0x7FFFFFFF))
            top = max(top, b ^ ((b >> np.int32(31)) & np.int32(0x7FFFFFFF)))
        if size >= np.int32(0x7F800000):
            tokens[row] = -1
            bad += 1
            continue
        largest = top ^ ((top >> np.int32(31)) & np.int32(0x7FFFFFFF))
        equal = np.int32(-2147483648) if largest == 0 else largest  # minus zero is as large as zero
        for j in range(bits.shape[1]):
            if bits[row, j] == largest or bits[row, j] == equal:
                tokens[row] = j
                break
    return bad

r"""The integer clock: picoseconds, one rounding per iteration, the same for every runner.

Integers make the compiled core, the uncompiled one and the reference agree to the bit; 2**63 ps are 106 days.
"""

from __future__ import annotations

__all__ = ["PS_PER_S", "coefficients", "duration_ps", "to_ps", "to_seconds", "token_ps", "with_context_ps"]

from typing import Any

import numpy as np

from tileq_theory.errors import InputError, finite
from tileq_theory.iteration_time import IterationTime

PS_PER_S = 1_000_000_000_000
_LONGEST_PS = 4.0e18


def duration_ps(
    c: float,
    w: float,
    a: float,
    b: float,
    beta: float,
    e: float,
    k: float,
    s: float,
    n: int,
    pairs2: int,
    kv: int,
    m: int,
) -> Any:
    r"""Return the time of one iteration in whole picoseconds.

    floor(c + max(w, a*ceil(n/b) + beta*n) + e*(pairs2/2) + k*kv + s*m + 1/2), in this order of additions; at most
    4*10^18 ps (46 days), at which every run stops.

    Parameters
    ----------
    c, w, a, b, beta, e, k, s
        `coefficients` of an `IterationTime`: picoseconds, b in tokens.
    n, pairs2, kv, m
        Tokens, twice the query-key pairs (whole, where the pairs are half-integers), KV tokens read, sequences.

    Examples
    --------
    >>> duration_ps(*coefficients(IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)), 512, 0, 0, 4)
    153160000000
    """
    return with_context_ps(token_ps(c, w, a, b, beta, n), e, k, s * m, pairs2, kv)


def token_ps(c: float, w: float, a: float, b: float, beta: float, n: int) -> Any:
    """Return the part of an iteration's time that depends on its tokens alone: c + max(w, a*ceil(n/b) + beta*n)."""
    linear = beta * n
    if a != 0.0:  # a division saved where no tile is modelled
        linear += a * ((n + int(b) - 1) // int(b))
    if linear < w:
        linear = w
    return c + linear


def with_context_ps(tokens: float, e: float, k: float, sequences: float, pairs2: int, kv: int) -> Any:
    """Return the time in whole picoseconds, from `token_ps`, s*m and what changes while the same batch repeats."""
    took = tokens + e * (0.5 * pairs2) + k * kv + sequences + 0.5
    if took > _LONGEST_PS:
        took = _LONGEST_PS  # beyond the end of every run: the clock would overflow, and the run ends here anyway
    return int(took)


def coefficients(time: IterationTime) -> tuple[float, float, float, float, float, float, float, float]:
    """Return (c, w, a, b, beta, e, k, s) of `time` in picoseconds (b in tokens).

    Raises `InputError` for a coefficient beyond 4*10^6 s, which the clock cannot count.
    """

    def ps(name: str) -> float:
        seconds = float(getattr(time, name))
        to_ps(name, seconds)
        return seconds * PS_PER_S

    fixed, linear = ("launch_s", "weight_floor_s", "tile_s"), ("token_s", "pair_s", "kv_token_s", "sequence_s")
    c, w, a = (ps(name) for name in fixed)
    beta, e, k, s = (ps(name) for name in linear)
    return c, w, a, float(time.tile_tokens), beta, e, k, s


def to_ps(name: str, seconds: float) -> int:
    """Return `seconds` as whole picoseconds; raise `InputError` naming it beyond 4*10^6 s or below 0."""
    value = finite(name, seconds)
    if not 0 <= value <= 4e6:
        raise InputError(f"{name} is {seconds!r}; expected seconds in [0, 4e6] (the clock counts picoseconds)")
    return round(value * PS_PER_S)


def to_seconds(ps: Any) -> Any:
    """Return picoseconds as seconds (float or float array)."""
    return np.asarray(ps, dtype=float) / PS_PER_S

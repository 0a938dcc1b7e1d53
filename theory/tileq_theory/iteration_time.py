r"""Iteration time: one parametric family for every published cost model (`theory.md` section 2).

    t(n, A, K, m) = c + max(w, a*ceil(n/b) + beta*n) + e*A + k*K + s*m

n tokens go through the linear layers, A query-key pairs are computed by prefill attention, K KV tokens are read
by decodes, m sequences take part. b is the tile (tokens of one GeMM tile or of one wave of tiles), a the time of
one tile, beta the element-wise time of a token, w the floor below which the linear layers cost the reading of
their weights, c the launch constant.
"""

from __future__ import annotations

__all__ = ["IterationTime"]

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, finite, nonnegative, positive, positive_int
from tileq_theory.provenance import EXACT, ErrorBand, Provenance

_LARGEST_TOKENS = 2**52  # every whole number up to here is exact in floating point
_NONNEGATIVE = ("weight_floor_s", "tile_s", "token_s", "pair_s", "kv_token_s", "sequence_s")


def _amount(name: str, value: Any) -> float | Float[np.ndarray, "..."]:
    """Return `value` as floats; anything not a number, not finite or negative raises `InputError`."""
    if type(value) in (int, float) and 0 <= value < math.inf:  # the common case, ten times quicker than an array
        return float(value)
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}; expected numbers") from None
    if not (array >= 0).all() or np.isinf(array).any():
        raise InputError(f"{name} is {value!r}; expected finite numbers that are 0 or more")
    return array


@dataclass(frozen=True, slots=True)
class IterationTime:
    """Time of one iteration in seconds, as a function of the batch it runs.

    Parameters
    ----------
    launch_s
        c, seconds; may be negative only as far as launch_s + weight_floor_s >= 0 (gate-and-route's form).
    weight_floor_s
        w, seconds: least time of the linear layers.
    tile_s
        a, seconds of one tile.
    tile_tokens
        b, tokens of one tile, a whole number of at least 1 (no meaning when tile_s is 0).
    token_s
        beta, seconds a token.
    pair_s
        e, seconds a query-key pair of prefill attention.
    kv_token_s
        k, seconds a KV token read by a decode.
    sequence_s
        s, seconds a sequence in the batch.
    kv_counts_prefill
        True when K counts the KV of everything scheduled, prompts in their prefill stage included (WAIT).
    provenance, error_band
        Where the coefficients came from and how far they may be trusted.

    Examples
    --------
    >>> t = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> round(float(t(512)), 5)
    0.15316
    """

    launch_s: float = 0.0
    weight_floor_s: float = 0.0
    tile_s: float = 0.0
    tile_tokens: int = 1
    token_s: float = 0.0
    pair_s: float = 0.0
    kv_token_s: float = 0.0
    sequence_s: float = 0.0
    kv_counts_prefill: bool = False
    provenance: Provenance = field(default=Provenance(), compare=False)
    error_band: ErrorBand = field(default=EXACT, compare=False)

    def __post_init__(self) -> None:
        for name in _NONNEGATIVE:
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))
        object.__setattr__(self, "launch_s", finite("launch_s", self.launch_s))
        object.__setattr__(self, "tile_tokens", positive_int("tile_tokens", self.tile_tokens))
        if self.launch_s + max(self.weight_floor_s, self.tile_s + self.token_s) < 0:
            raise InputError(
                f"launch_s is {self.launch_s!r}; expected that an iteration of one token takes 0 s or more, "
                f"but it would take {self.launch_s + max(self.weight_floor_s, self.tile_s + self.token_s)!r} s"
            )

    # ------------------------------------------------------------------ evaluation

    def linear_s(self, tokens: Any) -> Any:
        """Return max(w, a*ceil(n/b) + beta*n), seconds; scalar or array in, the same out."""
        n = _amount("tokens", tokens)
        return np.maximum(self.weight_floor_s, self.tile_s * np.ceil(n / self.tile_tokens) + self.token_s * n)

    def tau_s(self, tokens: Any) -> Any:
        """Return tau(n) = c + linear_s(n): the part of an iteration that only the batch size decides, seconds."""
        return self.launch_s + self.linear_s(tokens)

    def __call__(self, tokens: Any, pairs: Any = 0.0, kv_tokens: Any = 0.0, sequences: Any = 0.0) -> Any:
        """Return t(n, A, K, m) in seconds; scalars or arrays that broadcast, finite and 0 or more."""
        return (
            self.tau_s(tokens)
            + self.pair_s * _amount("pairs", pairs)
            + self.kv_token_s * _amount("kv_tokens", kv_tokens)
            + self.sequence_s * _amount("sequences", sequences)
        )

    def floor_tokens(self) -> int:
        """Return the largest n whose linear time is still w (0 when even one token costs more).

        A model whose linear layers cost nothing beyond the floor has no such n; it raises `InputError`, as does one
        whose floor lasts beyond 2^52 tokens.
        """
        if self.tile_s == 0 and self.token_s == 0:
            raise InputError("floor_tokens: tile_s and token_s are both 0, so every batch size costs the floor")
        # linear_s never falls with n, in floating point too, so bisection agrees with it to the last token
        low, high = 0, 1
        while float(self.linear_s(high)) <= self.weight_floor_s:
            low, high = high, 2 * high
            if high > _LARGEST_TOKENS:
                raise InputError(
                    f"floor_tokens: weight_floor_s {self.weight_floor_s!r} lasts beyond {_LARGEST_TOKENS} tokens "
                    f"at tile_s {self.tile_s!r} and token_s {self.token_s!r}; check the units"
                )
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if float(self.linear_s(middle)) <= self.weight_floor_s else (low, middle)
        return low

    def scaled(self, factor: float) -> IterationTime:
        """Return the same model with every time multiplied by `factor` > 0 (another time unit, or a slower device)."""
        f = positive("factor", factor)
        times = {name: f * getattr(self, name) for name in (*_NONNEGATIVE, "launch_s")}
        return replace(self, **times)

    def with_(self, **changes: Any) -> IterationTime:
        """Return a copy with the named fields changed; an unknown name raises `InputError`."""
        unknown = sorted(set(changes) - set(self.__slots__))
        if unknown:
            raise InputError(f"iteration time has no field {unknown[0]!r}; fields: {', '.join(self.__slots__)}")
        return replace(self, **changes)

    def to_dict(self) -> dict[str, object]:
        """Return every coefficient, the provenance and the error band as plain data."""
        names = ("launch_s", *_NONNEGATIVE)
        return {
            **{name: getattr(self, name) for name in names},
            "tile_tokens": self.tile_tokens,
            "kv_counts_prefill": self.kv_counts_prefill,
            "provenance": self.provenance.to_dict(),
            "error_band": self.error_band.to_dict(),
        }

    # ------------------------------------------------------------------ the sources' special cases

    @classmethod
    def rad(cls, *, t_lin_s: float, t_nl_s: float, tile_tokens: int) -> IterationTime:
        """RAD's eq. (7): a = t_Lin, b = b_col, beta = t_nl; no launch constant, no floor (arXiv 2508.01002)."""
        source = Provenance("formula", "Bari, Hegde, de Veciana, arXiv 2508.01002, eq. (7)")
        return cls(tile_s=t_lin_s, tile_tokens=tile_tokens, token_s=t_nl_s, provenance=source)

    @classmethod
    def dai(cls, *, launch_s: float, tile_s: float, tile_tokens: int) -> IterationTime:
        """Dai et al., assumption 1: t = c + a*ceil(n/b0) (arXiv 2504.07347)."""
        source = Provenance("formula", "Dai, Deng, Li, Peng, arXiv 2504.07347, assumption 1")
        return cls(launch_s=launch_s, tile_s=tile_s, tile_tokens=tile_tokens, provenance=source)

    @classmethod
    def wait(cls, *, d0_s: float, d1_s: float) -> IterationTime:
        """WAIT: t = d0 + d1*(KV of everything scheduled), prompts in their prefill included (arXiv 2504.11320)."""
        source = Provenance("formula", "Ao, Luo, Simchi-Levi, Wang, arXiv 2504.11320")
        return cls(launch_s=d0_s, kv_token_s=d1_s, kv_counts_prefill=True, provenance=source)

    @classmethod
    def gate_and_route(cls, *, c0_s: float, a0_s: float, b0_tokens: float) -> IterationTime:
        """Gate-and-route: t = c0 + a0*max(0, n - b0), as c = c0 - a0*b0, w = a0*b0, beta = a0 (arXiv 2602.02987)."""
        source = Provenance("formula", "Lin, Ding, Han, Zhang, arXiv 2602.02987")
        floor = nonnegative("a0_s", a0_s) * nonnegative("b0_tokens", b0_tokens)
        return cls(launch_s=nonnegative("c0_s", c0_s) - floor, weight_floor_s=floor, token_s=a0_s, provenance=source)

    @classmethod
    def constant(cls, seconds: float) -> IterationTime:
        """Nie et al.: one representative batch time, whatever the batch (arXiv 2605.04595)."""
        source = Provenance("formula", "Nie, Si, Zhou, ICML 2026, arXiv 2605.04595")
        return cls(launch_s=nonnegative("seconds", seconds), provenance=source)

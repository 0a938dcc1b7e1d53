r"""Dai et al.: a batch of n tokens takes t(n) = c + a*ceil(n/b0); work-conserving schedulers fill b_max tokens.

    lambda* (m_p + m_d) = b_max / t(b_max)             (Theorem 2)

Tokens per second of j full tiles, j*b0/(c + a*j), rise with j towards b0/a: the launch constant c is shared by more
tiles. So "tiles per batch" is a decision, and the best one is the largest that the budget allows.
"""

from __future__ import annotations

__all__ = [
    "DAI_BEST_RATE",
    "DAI_CAPACITY",
    "DAI_LOAD",
    "DAI_TILES_FOR_SHARE",
    "DAI_TILE_RATE",
    "DAI_TIME",
    "DAI_TOKEN_RATE",
    "FORMS",
    "TileChoice",
    "best_tiles",
]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tileq_theory.closed_forms.base import ClosedForm, Condition, Quantity
from tileq_theory.closed_forms.quantities import BATCH_TOKENS, LAUNCH_S, NODES, RATE, TILE_S, TILE_TOKENS
from tileq_theory.errors import InputError, nonnegative, positive, positive_int

_SOURCE = "Dai, Deng, Li, Peng, arXiv 2504.07347"
_M_P = Quantity("prefill_tokens", "m_p", "mean prompt tokens", "tokens", "nonnegative")
_M_D = Quantity("decode_tokens", "m_d", "mean output tokens", "tokens", "nonnegative")
_TILES = Quantity("tiles", "j", "full tiles of the batch", "")
_SHARE = Quantity("share", r"\sigma", "wanted share of the limiting token rate b0/a", "", "share")
_MODEL = (LAUNCH_S, TILE_S, TILE_TOKENS)


def _time(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    return v["launch_s"] + v["tile_s"] * sp.ceiling(v["batch_tokens"] / v["tile_tokens"])


def _token_rate(v: Mapping[str, Any]) -> Any:
    return v["batch_tokens"] / _time(v)


def _tokens(v: Mapping[str, Any]) -> Any:
    return v["prefill_tokens"] + v["decode_tokens"]


def _tiles_for_share(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    return sp.ceiling(v["share"] * v["launch_s"] / (v["tile_s"] * (1 - v["share"])))


_WORK = Condition(_tokens, "prefill_tokens + decode_tokens > 0")

DAI_TIME = ClosedForm(
    "dai_iteration_time",
    "time of a batch of n tokens",
    f"{_SOURCE}, Assumption 1 and eq. (4)",
    "s",
    (*_MODEL, BATCH_TOKENS),
    _time,
)
DAI_TOKEN_RATE = ClosedForm(
    "dai_token_rate",
    "tokens per second of full batches",
    f"{_SOURCE}, Theorem 2",
    "tokens/s",
    (*_MODEL, BATCH_TOKENS),
    _token_rate,
)
DAI_TILE_RATE = ClosedForm(
    "dai_tile_rate",
    "tokens per second of batches of j full tiles",
    f"{_SOURCE}, Assumption 1",
    "tokens/s",
    (*_MODEL, _TILES),
    lambda v: v["tiles"] * v["tile_tokens"] / (v["launch_s"] + v["tile_s"] * v["tiles"]),
)
DAI_BEST_RATE = ClosedForm(
    "dai_best_rate",
    "limit of the token rate for ever larger batches",
    f"{_SOURCE}, Assumption 1",
    "tokens/s",
    (TILE_S, TILE_TOKENS),
    lambda v: v["tile_tokens"] / v["tile_s"],
)
DAI_TILES_FOR_SHARE = ClosedForm(
    "dai_tiles_for_share",
    "least tiles per batch that reach a share of the limiting token rate",
    f"{_SOURCE}, Assumption 1: j*a/(c + a*j) >= share",
    "tiles",
    (LAUNCH_S, TILE_S, _SHARE),
    _tiles_for_share,
    (Condition(lambda v: 1 - v["share"], "share < 1 (the limit itself is never reached)"),),
)
DAI_CAPACITY = ClosedForm(
    "dai_capacity",
    "capacity of R nodes with full batches",
    f"{_SOURCE}, Theorem 2",
    "1/s",
    (NODES, _M_P, _M_D, *_MODEL, BATCH_TOKENS),
    lambda v: v["nodes"] * _token_rate(v) / _tokens(v),
    (_WORK,),
)
DAI_LOAD = ClosedForm(
    "dai_load",
    "load: arriving tokens over the tokens that full batches serve",
    f"{_SOURCE}, Theorem 2 (stable below 1)",
    "",
    (NODES, RATE, _M_P, _M_D, *_MODEL, BATCH_TOKENS),
    lambda v: v["rate_per_s"] * _tokens(v) / (v["nodes"] * _token_rate(v)),
    (_WORK,),
)
FORMS = (DAI_TIME, DAI_TOKEN_RATE, DAI_TILE_RATE, DAI_BEST_RATE, DAI_TILES_FOR_SHARE, DAI_CAPACITY, DAI_LOAD)


@dataclass(frozen=True, slots=True)
class TileChoice:
    """The batch size with the most tokens per second.

    Parameters
    ----------
    batch_tokens, tiles
        The batch, and the tiles it occupies.
    tokens_per_s
        Its token rate.
    gain_over_one_tile
        Relative gain over batches of one full tile (or of the whole budget when a tile does not fit).
    loss_of_one_tile
        1 - (one-tile rate)/(this rate).
    """

    batch_tokens: int
    tiles: int
    tokens_per_s: float
    gain_over_one_tile: float
    loss_of_one_tile: float


def best_tiles(*, launch_s: float, tile_s: float, tile_tokens: int, max_batch_tokens: int) -> TileChoice:
    r"""Return the batch of at most b_max tokens that serves the most tokens per second.

    The rate n/(c + a*ceil(n/b0)) rises within a tile and, at full tiles, with their number; so only the last full
    tile and b_max itself can be best. Equal rates go to the smaller batch: it costs less latency.

    Parameters
    ----------
    launch_s, tile_s
        c >= 0 and a > 0, seconds.
    tile_tokens, max_batch_tokens
        b0 and b_max, whole tokens.

    Raises
    ------
    InputError
        A parameter outside its domain.

    Examples
    --------
    >>> best_tiles(launch_s=0.01128, tile_s=0.03547, tile_tokens=128, max_batch_tokens=512).tiles
    4
    """
    c, a = nonnegative("launch_s", launch_s), positive("tile_s", tile_s)
    b0, b_max = positive_int("tile_tokens", tile_tokens), positive_int("max_batch_tokens", max_batch_tokens)
    # without a launch constant every full tile is as good: take one
    last_full = min(b0, b_max) if c == 0 else max(b_max - b_max % b0, min(b0, b_max))
    candidates = sorted({last_full, min(b0, b_max) if c == 0 else b_max})

    def rate(n: int) -> float:
        return n / (c + a * -(-n // b0))

    best = max(candidates, key=rate)
    one = rate(min(b0, b_max))
    if rate(best) <= 0:
        raise InputError(f"the best token rate is {rate(best)!r}; expected times at which it is above 0")
    return TileChoice(best, -(-best // b0), rate(best), rate(best) / one - 1, 1 - one / rate(best))

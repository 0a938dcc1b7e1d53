"""Numbers and constraints in words, the same in the terminal, the figures and the documents."""

from __future__ import annotations

__all__ = ["binding_sentence", "counted", "lever", "number", "percent", "seconds"]

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tileq_theory.capacity import Limits

_LEVERS = {
    "kv_tokens": "more KV memory",
    "max_num_seqs": "more slots",
    "tbt_s": "more time between tokens",
    "launch_s": "less launch time",
    "weight_floor_s": "faster weight reads",
    "tile_s": "faster matrix tiles",
    "token_s": "faster element-wise work",
    "pair_s": "faster prefill attention",
    "kv_token_s": "faster KV reads",
    "sequence_s": "less time a sequence",
}
_SPENT = {
    "linear": "linear layers",
    "weights_floor": "reading weights in small batches",
    "kv_reads": "reading KV",
    "attention": "prefill attention",
    "launch": "launching iterations",
    "sequences": "per-sequence work",
}


def number(value: float | None, digits: int = 3) -> str:
    """Return `value` with that many significant digits, never in exponent form between 1e-4 and 1e7; None as "-".

    Examples
    --------
    >>> number(21.3456), number(1234567.0), number(0.04567), number(8192)
    ('21.3', '1,234,567', '0.0457', '8,192')
    """
    if value is None or not math.isfinite(value):
        return "-"
    if value and (abs(value) >= 1e15 or abs(value) < 1e-4):
        return f"{value:.{digits}g}"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{float(f'{value:.{digits}g}'):,.12g}"


def seconds(value: float | None) -> str:
    """Return a time with a unit that suits it; None as "-".

    Examples
    --------
    >>> seconds(0.0123), seconds(2.5), seconds(4.2e-7), seconds(0.0)
    ('12.3 ms', '2.5 s', '0.42 us', '0 s')
    """
    if value is None:
        return "-"
    if value == 0:
        return "0 s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= size:
            return f"{number(value / size)} {unit}"
    return f"{number(value / 1e-6)} us"


def percent(share: float | None) -> str:
    """Return a share in percent, without a blank at which a line could break; None as "-".

    Examples
    --------
    >>> percent(0.4567), percent(0.0004), percent(1.0)
    ('45.7%', '0.04%', '100%')
    """
    if share is None:
        return "-"
    return f"{number(100 * share, 3 if abs(share) >= 0.1 else 2)}%"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def lever(name: str) -> str:
    """Return what moving a limit or a coefficient the good way is called."""
    return _LEVERS.get(name, name)


def binding_sentence(binding: str, time_shares: Mapping[str, float], limits: Limits) -> str:
    """Return one sentence: which constraint decides the capacity, and what that means."""
    spent = ", ".join(f"{percent(s)} {_SPENT.get(k, k)}" for k, s in _largest(time_shares, 3))
    kv, slots, tbt = limits.kv_tokens, limits.max_num_seqs, limits.tbt_s
    sentences = {
        "time": f"Node time is used up: {spent}.",
        "weights_floor": f"Node time is used up, most of it by batches too small to pay for the weights: {spent}.",
        "memory": f"KV memory is used up: {number(kv or 0)} tokens are held all the time; time goes to {spent}.",
        "slots": f"All {number(slots or 0)} slots are taken all the time; time goes to {spent}.",
        "tbt": f"Iterations may not last longer than {seconds(tbt or 0)}; time goes to {spent}.",
    }
    return sentences.get(binding, f"The {binding} constraint is used up; time goes to {spent}.")


def _largest(shares: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    ranked = sorted(((k, v) for k, v in shares.items() if k != "idle" and v >= 5e-4), key=lambda item: -item[1])
    return ranked[:count]

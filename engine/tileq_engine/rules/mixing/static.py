"""Static batching: nobody joins a batch until its last member has ended (FasterTransformer)."""

from __future__ import annotations

__all__ = ["mix_static"]

from typing import Any

from tileq_engine.batch import secure_decodes
from tileq_engine.records import Records
from tileq_engine.rules.mixing.chunked import fill_ongoing, fill_waiting

_PREFILL = 1


def mix_static(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    W: Any,
    P: Any,
    decodes: Any,
    order: Any,
    admit: Any,
    victim: Any,
) -> None:
    """Form a batch when the system is empty, prefill it whole, decode it until its longest member ends."""
    s = S[0]
    if s.nres == 0:
        fill_waiting(R, B, S, H, O, P, s.budget, order, admit)
        return
    prefilling = 0
    for k in range(s.nres):
        if B[O[k]].phase == _PREFILL:
            prefilling += 1
    if prefilling > 0:
        fill_ongoing(B, S, O, s.budget)
        return
    n = decodes(R, B, S, O, W, P)
    secure_decodes(R, B, S, H, O, W, P, n, order, victim)
    s.deaf = 1
    s.repeat = 1 if s.ndec == n else 0

"""RAD's two modes (Algorithm 1): a tile of decodes, or a tile of one prefill, never both."""

from __future__ import annotations

__all__ = ["mix_rad"]

from typing import Any

from tileq_engine.batch import admit_request, head, remove_waiting, secure_decodes, take_chunk
from tileq_engine.records import Records

_PREFILL, _DECODE = 1, 2


def mix_rad(
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
    """Decode mode when b_col residents decode or no prefill is at hand, else one chunk of b_lcm tokens of the oldest.

    A cycle takes in up to S[0].cycle requests (0: no bound) and ends when all of them are done. A chunk shorter than
    a tile is padded: the tile is computed, the tokens, KV and backlog counted are the real ones.
    """
    s = S[0]
    s.room = s.tile_p
    if s.nres == 0:
        s.intake = 0
    decoding = 0
    oldest = -1
    for k in range(s.nres):
        slot = O[k]
        if B[slot].phase == _DECODE:
            decoding += 1
        elif oldest < 0:
            oldest = slot
    while oldest < 0 and decoding < s.tile_d and s.nres < s.max_seqs and (s.cycle == 0 or s.intake < s.cycle):
        place = head(R, S, H, P, order)
        if place < 0 or admit(R, B, S, P, H[place]) == 0:
            break
        slot = admit_request(R, B, S, O, P, remove_waiting(R, S, H, place))
        s.intake += 1
        if B[slot].phase == _DECODE:
            decoding += 1
        else:
            oldest = slot
    if decoding < s.tile_d and oldest >= 0:
        b = B[oldest]
        chunk = b.target - b.cached
        if chunk > s.tile_p:
            chunk = s.tile_p
        if take_chunk(b, s, chunk):
            s.pad = s.tile_p - chunk if s.pad_on == 1 else 0
            s.deaf = 1
            s.repeat = 1
            return
    n = decodes(R, B, S, O, W, P)
    secure_decodes(R, B, S, H, O, W, P, n, order, victim)
    s.repeat = 1 if s.ndec == n else 0
    s.deaf = 1 if decoding >= s.tile_d or (s.cycle > 0 and s.intake >= s.cycle) else 0

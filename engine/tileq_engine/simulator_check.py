"""The invariants, recomputed from the records at every iteration of a checked run."""

from __future__ import annotations

__all__ = ["CLOCK", "ERRORS", "verify"]

from typing import Any

from tileq_engine.prefix_tree import held_blocks, verify_tree
from tileq_engine.records import Records

_FREE, _PREFILL, _DECODE = 0, 1, 2

CLOCK = 14
ERRORS: dict[int, str] = {
    1: "is in the batch both as a prefill chunk and as a decode",
    2: "got a prefill chunk of {value} tokens, which is not between 1 and what is left of its prompt",
    3: "decodes although its prefill is not finished",
    4: "runs without enough KV blocks for its context ({value} blocks held)",
    5: "is part of a batch for which blocks used + free is {value}, not the total",
    6: "is part of a batch with {value} residents, more than max_num_seqs",
    7: "is part of a batch whose counted tokens differ from its members' by {value}",
    8: "is part of a RAD batch of {value} tokens that is neither a full tile nor all resident decodes",
    9: "was to be preempted from slot {value}, which is not resident",
    10: "is part of a RAD state with {value} decoding residents, more than b_col",
    11: "is part of a state whose backlog differs from the accounted one by {value} tokens",
    12: "breaks RAD's pathwise bound: {value} tokens served by now are more than its service rate allows",
    15: "shares a cached block whose references are {value} fewer than the residents that hold it",
    16: "is part of a state whose cached blocks are not a tree: block {value} is kept without the one before it",
    17: "is part of a state whose idle cached blocks are not counted, or not in the order they were let go, at {value}",
    13: "has no place in the queue: the order rule gave something that is not a number for it",
    CLOCK: "an iteration of policy {policy}, begun at {value} s, takes longer than the clock counts, 4.6e6 s; are "
    "iteration time and swap_token_s in seconds?",
}


def _fail(S: Records, error: int, request: int, value: int) -> None:
    s = S[0]
    if s.error == 0:
        s.error = error
        s.error_id = request
        s.error_value = value


def backlog(R: Records, B: Records, S: Records, H: Any, O: Any) -> Any:  # noqa: E741
    """Return the tokens left of every request in the system, from the records: RAD's Lyapunov function.

    Of a node that hands its requests over, those of their prefills.
    """
    s = S[0]
    total = 0
    for k in range(s.nres):
        b = B[O[k]]
        if s.hand == 1:
            total += b.target - b.cached
            continue
        total += b.output - b.gen + b.replay
        if b.phase == _PREFILL:
            total += b.target - b.cached - s.emit
    for j in range(s.nwait):
        r = R[H[j]]
        if s.hand == 1:
            total += r.prompt + r.gen - r.replay
            continue
        total += r.output - r.gen + r.replay
        if r.cached == 0:
            total += r.prompt + r.gen - r.replay - s.emit
    return total


def verify(R: Records, B: Records, S: Records, H: Any, O: Any, P: Any) -> None:  # noqa: E741
    """Check the batch and the state; the first breach is left in S[0].error, error_id, error_value."""
    s = S[0]
    decodes = 0
    chunks = 0
    decoding = 0
    blocks = s.free + s.held + s.promised
    who = -1
    for k in range(s.nres):
        b = B[O[k]]
        who = b.id
        blocks += b.blocks - held_blocks(S, P, b)
        if b.dec == 1 and b.chunk != 0:
            _fail(S, 1, b.id, b.chunk)
        if b.chunk != 0 and (b.chunk < 0 or b.phase != _PREFILL or b.cached + b.chunk > b.target):
            _fail(S, 2, b.id, b.chunk)
        if b.dec == 1 and b.phase != _DECODE:
            _fail(S, 3, b.id, 1)
        if b.cached + b.chunk + b.dec > b.blocks * s.block:
            _fail(S, 4, b.id, b.blocks)
        if b.phase == _DECODE:
            decoding += 1
        decodes += b.dec
        chunks += b.chunk
    blocks += s.held_nodes * s.node_blocks
    if blocks != s.total_blocks or s.free < 0:
        _fail(S, 5, who, blocks)
    if s.nres > s.max_seqs:
        _fail(S, 6, who, s.nres)
    if decodes != s.ndec or chunks != s.npre:
        _fail(S, 7, who, decodes + chunks - s.ndec - s.npre)
    if s.tree > 0 and s.error == 0:
        breach = verify_tree(B, S, O, P)
        if breach > 0:
            _fail(S, breach, who, s.error_value)
    for j in range(s.nwait):
        if R[H[j]].key != R[H[j]].key:
            _fail(S, 13, H[j], 0)
    left = backlog(R, B, S, H, O)
    if left != s.work:
        _fail(S, 11, who, left - s.work)
    if s.rad == 1 and decodes + chunks > 0:
        if decoding > s.tile_d:
            _fail(S, 10, who, decoding)
        full = (chunks > 0 and chunks + s.pad == s.tile_p and decodes == 0) or (chunks == 0 and decodes == s.tile_d)
        starved = s.free == 0  # a decode without a block is left out
        if not full and not starved and not (chunks == 0 and decodes == decoding and decoding < s.tile_d):
            _fail(S, 8, who, decodes + chunks)
        rate = s.a * ((s.tile_d + int(s.b) - 1) // int(s.b)) + s.beta * s.tile_d
        served = s.prefill_tokens + s.decode_tokens
        if s.tile_p == s.tile_d and served * rate > s.tile_d * (s.now + s.iters):
            _fail(S, 12, who, served)

"""RAD, Algorithm 1."""

from __future__ import annotations

__all__ = ["rad"]

import functools
import math

from tileq_engine.config import EngineConfig
from tileq_engine.policies.common import checked_common
from tileq_engine.policy import Policy, Prepared
from tileq_engine.requests import Requests
from tileq_theory.errors import boolean, positive_int
from tileq_theory.iteration_time import IterationTime


def rad(
    *,
    b_col: int | None = None,
    b_row: int | None = None,
    b_red: int | None = None,
    b_lcm: int | None = None,
    cycle: int | None = None,
    pad: bool = True,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """RAD: resource-aware dynamic batching (Bari, Hegde, de Veciana, arXiv 2508.01002, Algorithm 1).

    When b_col residents decode, or no prefill is at hand, every resident decodes (decode mode); otherwise the
    oldest prefill gets one chunk of b_lcm = lcm(b_row, b_col, b_red) tokens and nobody decodes (prefill mode). A
    prefill that ends joins the decodes. A cycle takes in up to `cycle` requests and ends when all of them are done
    (None: no bound). b_col is the iteration time's tile unless given. It optimises throughput: every batch is a
    full tile except in a drain, so it is stable wherever any policy is, under an iteration time proportional to
    tiles. It fails where launch constants or weight reads make larger batches cheaper (then see rad_general), and
    on TBT, since prefill mode stops all decodes.

    The source leaves the bookkeeping of a finite cycle and prompts that are no multiple of the tile open. Chosen
    here: a request is taken in when the decodes are short of b_col and no prefill is at hand, in order of arrival,
    if a slot and the blocks of prompt and predicted output are there; when nobody waits, decode mode runs short
    rather than idle, and the cycle stays open; a finished drain starts the next cycle. A last chunk shorter than
    b_lcm is padded: its iteration costs a full tile (`pad=False`: its real tokens), while KV, attention and backlog
    count real tokens.
    """
    own = {
        name: positive_int(name, value)
        for name, value in {"b_col": b_col, "b_row": b_row, "b_red": b_red, "b_lcm": b_lcm, "cycle": cycle}.items()
        if value is not None
    }

    padded = boolean("pad", pad)
    return Policy(
        name="rad",
        mixing="mix_rad",
        params={**own, "pad": padded},
        scalars={"alloc": 2, "to_front": 1, "pad_on": int(padded), "rad": int(padded), "seat": 0},
        prepare=functools.partial(_tiles, own),
        **checked_common(token_budget, max_num_seqs),
    )


def _tiles(
    own: dict[str, int], policy: Policy, requests: Requests, time: IterationTime, config: EngineConfig
) -> Prepared:
    column = own.get("b_col", time.tile_tokens if time.tile_s > 0 else config.token_budget)
    tile = own.get("b_lcm", math.lcm(column, own.get("b_row", column), own.get("b_red", column)))
    return Prepared(requests, {"tile_d": column, "tile_p": tile, "cycle": own.get("cycle", 0)})

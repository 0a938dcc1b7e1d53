"""Tenants' accounts: the virtual token counter (Sheng et al., OSDI 2024, Algorithms 2 and 3), quotas, starvation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tileq_reference.core import Simulator
    from tileq_reference.parts import Batch, Request

BACKGROUND = 2**60  # counters of tenants of weight 0 start here


@dataclass
class Account:
    """What a tenant pays for tokens, may hold, and has got."""

    prompt_charge: int
    output_charge: int
    quota: int  # 0: none
    counter: int
    residents: int = 0
    queued: int = 0
    present: int = 0
    since: int = -1  # served last, or came with nobody of its own in the system
    starved: int = 0
    prefilled: int = 0
    delivered: int = 0

    @property
    def open(self) -> bool:
        return not self.quota or self.residents < self.quota


def welcome(s: Simulator, r: Request) -> None:
    """`r` joins the queue: a tenant that has nobody there is lifted to the least who have, or to who left last."""
    if not s.accounts:
        return
    mine = s.accounts[r.tenant]
    if mine.present == 0:
        mine.since = max(mine.since, r.arrival)
    mine.present += 1
    if s.c.get("fair") and not mine.queued:
        alike = [a for a in s.accounts if (a.counter >= BACKGROUND) == (mine.counter >= BACKGROUND)]
        floor = [a.counter for a in alike if a.queued]
        if not floor and s.last_tenant is not None and s.accounts[s.last_tenant] in alike:
            floor = [s.accounts[s.last_tenant].counter]
        mine.counter = max(mine.counter, min(floor, default=0))
    mine.queued += 1


def seat(s: Simulator, r: Request) -> None:
    """`r` leaves the queue; its prompt is charged the first time."""
    mine = s.accounts[r.tenant]
    mine.queued -= 1
    mine.residents += 1
    s.last_tenant = r.tenant
    if not r.admitted:
        mine.counter += r.prompt * mine.prompt_charge


def credit(s: Simulator, b: Batch) -> None:
    """What the batch that has just run brings its members' tenants, before it is written into the members."""
    for r, tokens, decode in b.items:
        mine = s.accounts[r.tenant]
        ends = not decode and r.kv + tokens == r.target and s.c.engine_convention
        got = int((decode or ends) and not r.replay)
        mine.delivered += got
        mine.counter += got * mine.output_charge
        if not decode:
            mine.prefilled += max(0, min(r.kv + tokens, r.prompt) - max(r.kv, r.seen))
        mine.starved = max(mine.starved, b.start - mine.since)
        mine.since = s.now

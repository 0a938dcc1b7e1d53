"""What keeps requests waiting, what is done when many do, and the budget that holds the time between tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tileq_reference.core import Simulator
    from tileq_reference.parts import Request

SLOTS, BLOCKS, BURST, POOL, TRANSFER, QUOTA, HELD = 1, 2, 3, 4, 5, 6, 7
RESERVING = ("static", "rad", "svf")
BY_CHUNK = ("vllm_v1",)


def pressed(s: Simulator) -> bool:
    assert s.c.pressure is not None
    _, waiting, blocks, _ = s.c.pressure
    return s.queued >= waiting or s.c.kv_blocks - s.free >= blocks


def budget_now(s: Simulator) -> int:
    full = s.fit.budget if s.fit else s.memo.setdefault("full budget", s.c.budget)
    if s.c.pressure and s.c.pressure[0] == "shrink" and pressed(s):
        return min(full, s.c.pressure[3])
    return int(full)


@dataclass
class Fit:
    """The budget with which a full iteration takes what is aimed at; the aim moves so that few exceed the limit."""

    limit: int
    least: int
    most: int
    budget: int
    exceed: float = 0.01
    gain: float = 0.05
    forget: float = 0.95
    sums: list[float] = field(default_factory=lambda: [0.0] * 5)
    slope: float = 0.0
    aim: float = 0.0

    def __post_init__(self) -> None:
        self.aim = 0.9 * self.limit
        self.budget = min(self.budget, self.most)

    def steer(self, tokens: int, decodes: int, budget: int, took: int) -> None:
        n, t = float(tokens), float(took)
        news = (1.0, n, t, n * n, n * t)
        self.sums = [self.forget * old + new for old, new in zip(self.sums, news, strict=True)]
        w, sn, st, snn, snt = self.sums
        spread = w * snn - sn * sn
        if spread > 0.001 * sn * sn:
            self.slope = (w * snt - sn * st) / spread
        if not decodes:
            return
        over = took > self.limit
        self.aim = min(self.aim * (1 + self.gain * (self.exceed - over)), self.limit)
        if not over and tokens < budget:
            return
        slope = self.slope if self.slope > 0 and self.slope * n <= t else t / n
        want = n + (self.aim - t) / slope if slope > 0 else n
        want = max(min(want, 1.25 * self.budget), 0.5 * n)
        self.budget = int(max(min(want, self.most), self.least))


def note(s: Simulator, begin: int, end: int, iterations: int, took: int = 0) -> None:
    """Write down the cause for which requests wait from `begin` to `end`, with the same cause just before in one."""
    if not s.c.watch or not s.waiting:
        return
    cause, waiting = cause_of(s, took), len(s.waiting)
    if s.causes and s.causes[-1][0] == cause and s.causes[-1][2] == begin:
        last = s.causes[-1]
        s.causes[-1] = [cause, last[1], end, last[3] + iterations, max(last[4], waiting)]
    else:
        s.causes.append([cause, begin, end, iterations, waiting])


def cause_of(s: Simulator, took: int) -> int:
    from tileq_reference.rules import heads
    from tileq_reference.sglang import first as next_of_sglang

    b = s.batch
    prefills = b.tokens - b.decodes
    first = next_of_sglang(s) if s.c.policy == "sglang" else next(heads(s, s.c.get("waiting order", "fcfs")), None)
    if b.swapped_tokens and 2 * s.c.swap_ps_per_token * b.swapped_tokens >= took:
        return TRANSFER
    if b.preempted:
        return BLOCKS
    if len(s.running) >= s.c.max_seqs:
        return SLOTS
    if b.tokens >= s.c.budget:
        return BURST if 2 * prefills >= s.c.budget else POOL
    if first is None:
        return QUOTA
    if not may_enter(s, first, s.c.budget - b.tokens):
        return BLOCKS
    return BURST if prefills else HELD


def may_enter(s: Simulator, r: Request, room: int) -> bool:
    """The memory gate alone, as the policy or the reservation has it."""
    from tileq_reference.rules import may_hold, modes, promised
    from tileq_reference.sglang import estimate_fits

    by_chunk, conservative = modes(s, s.c.policy in BY_CHUNK, s.c.get("order") == "svf" or s.c.policy in RESERVING)
    sequence = s.c.reservation == "policy" and s.c.get("admission", "chunk") == "sequence"
    known = r.kv + 1 if r.status == "swapped" else r.target
    in_part = by_chunk and not sequence and r.status != "swapped"
    holds = min(known, s.had(r) + room) if in_part else known
    if s.c.policy == "sglang" and s.c.reservation == "policy":
        return estimate_fits(s, r)
    if conservative:
        holds = promised(s, r)
    free_of_watermark = by_chunk or (s.c.policy in ("wait", "nested_wait") and s.c.reservation == "policy")
    return s.missing(r, holds) <= s.free if free_of_watermark else may_hold(s, r, holds)

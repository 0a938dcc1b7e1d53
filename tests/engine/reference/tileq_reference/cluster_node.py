"""A node of a cluster in plain Python: the single-engine referee, stopped at both ends of an iteration."""

from __future__ import annotations

from collections.abc import Callable

from tileq_reference.accounts import credit, welcome
from tileq_reference.core import Simulator
from tileq_reference.parts import Batch, Config, Cost, Request
from tileq_reference.pressure import Fit, pressed
from tileq_reference.rules import modes

FAR = 1 << 62


class Node(Simulator):
    """The referee's engine, stopped at both ends of an iteration."""

    def __init__(self, config: Config, cost: Cost, policy: Callable[[Simulator], None], role: str, weight: float = 1.0):
        super().__init__([], config, cost, policy)
        self.role, self.weight = role, weight
        self.up, self.open, self.due = True, False, False
        self.end, self.rest_until = 0, FAR
        self.entered: list[Request] = []
        self.handed: list[Request] = []
        self.held: dict[int, int] = {}  # request -> blocks kept until it has been carried away
        self.promised: dict[int, int] = {}
        self.coming, self.stamp, self.passes = 0, 0, 0
        self.aborted = self.lost = 0
        self.first = config

    @property
    def queued(self) -> int:
        return len(self.waiting) + len(self.entered)

    @property
    def passes_on(self) -> bool:
        """Whether its backpressure sends requests elsewhere."""
        return bool(self.c.pressure and self.c.pressure[0] == "reroute")

    @property
    def turns_away(self) -> bool:
        """Whether its backpressure does so now, or rejects."""
        return bool(self.c.pressure and self.c.pressure[0] in ("reject", "reroute") and pressed(self))

    @property
    def work(self) -> int:
        return sum(self.work_of(r) for r in [*self.entered, *self.waiting, *self.running])

    def work_of(self, r: Request) -> int:
        emit = 1 if self.c.engine_convention else 0
        fresh = r.status != "running" and r.kv == 0
        prefill = r.prompt + r.generated if fresh else max(r.target - r.kv, 0)
        if self.role == "prefill":
            return prefill
        left = r.output - r.generated
        return left if prefill == 0 else prefill + left - emit

    def enter(self, r: Request, now: int) -> bool:
        if not self.open:
            self.now = now
            self.due = True
        r.reason = self.refuses(r)
        if r.reason:
            r.status = "rejected"
            return False
        r.status, r.returning = "waiting", False
        r.target = r.prompt + r.generated if r.kv == 0 else r.kv
        self.entered.append(r)
        return True

    def refuses(self, r: Request) -> int:
        reason = self.turned_away(r)
        if self.role == "prefill" and reason == 2 and -(-(r.prompt + r.generated) // 16) <= self.c.kv_blocks:
            reason = 4 if self.c.queue_limit is not None and self.in_system >= self.c.queue_limit else 0
        return 0 if r.id in self.promised and reason >= 3 else reason

    def fits(self, r: Request) -> bool:
        seats = self.in_system + self.coming
        if not self.up or seats >= self.c.max_seqs or self.peak_blocks(r) > self.c.kv_blocks:
            return False
        if self.c.queue_limit is not None and seats >= self.c.queue_limit:
            return False
        return self.aside(r) + (self.c.watermark if seats else 0) <= self.free

    def aside(self, r: Request) -> int:
        """Blocks set aside for a request that comes with its KV: of its next token, or of its predicted end."""
        conservative = modes(self, False, False)[1]
        end = min(r.kv + max((r.predicted or 0) - r.generated, 1), self.c.kv_blocks * 16)
        return -(-max(r.kv + 1, end if conservative else 0) // 16)

    def decide(self) -> None:
        """Form the batch of now; leave it open, or rest."""
        self.due = False
        for r in self.entered:
            if self.accounts:
                welcome(self, r)
            self.free += self.promised.pop(r.id, 0)
            if r.kv > 0:
                need = self.aside(r)
                assert len(self.running) < self.c.max_seqs and need <= self.free, "a promised seat: not in the referee"
                self.waiting.append(r)
                self.admit(r)
                r.blocks, self.free = need, self.free - need
            else:
                place = sum(x.returning or x.id < r.id for x in self.waiting)
                self.waiting.insert(place, r)
        self.entered = []
        while True:
            self.batch = Batch(start=self.now)
            if self.in_system:
                super().decide()
            if self.batch.items or not self.batch.preempted or self.empties > self.in_system:
                break
            self.empties += 1
        if not self.batch.items:
            return
        self.empties = 0
        b = self.batch
        pairs2 = sum(t * (2 * r.kv + t + 1) for r, t, decode in b.items if not decode)
        kv = sum(r.kv + t for r, t, decode in b.items if decode or self.cost.kv_counts_prefill)
        took = self.cost(max(b.tokens, b.padded_to), pairs2, kv, len(b.items))
        self.open, self.end = True, self.now + took + self.c.swap_ps_per_token * b.swapped_tokens

    def finish(self) -> None:
        self.open, self.now, self.due = False, self.end, True
        members = {r.id: (tokens, decode) for r, tokens, decode in self.batch.items}
        if self.accounts:
            credit(self, self.batch)
        if self.fit:
            self.fit.steer(self.batch.tokens, self.batch.decodes, self.c.budget, self.now - self.batch.start)
        for r in list(self.running):  # in order of admission
            if r.id in members:
                self.record(r, *members[r.id])
        self.batches.append(self.batch)

    def record(self, r: Request, tokens: int, decode: bool) -> None:
        super().record(r, tokens, decode)
        if self.role == "prefill" and r.status == "running" and not r.prefilling:
            self.running.remove(r)
            r.status = "handed"
            self.held[r.id], r.blocks = r.blocks, 0
            if self.accounts:
                self.accounts[r.tenant].present -= 1
                self.accounts[r.tenant].residents -= 1
            self.handed.append(r)

    def fail(self, now: int) -> list[Request]:
        """Lose everything; return the requests, oldest first."""
        self.up = self.open = self.due = False
        if self.end > now and self.batch.items:
            self.aborted += self.batch.tokens
        self.end = min(self.end, now)  # a second failure before anything new runs aborts nothing
        for r in [*self.running, *self.waiting] if self.accounts else []:
            mine = self.accounts[r.tenant]
            mine.present -= 1
            if r.status == "running":
                mine.residents -= 1
                r.seen = max(r.seen, r.kv)
            else:
                mine.queued -= 1
        if self.fit:
            assert self.first.control is not None
            self.fit = Fit(*self.first.control, self.first.budget)
        gone = sorted([*self.running, *self.waiting, *self.entered], key=lambda r: r.id)
        for r in gone:
            self.lost += r.kv
            lose(r)
        self.running, self.waiting, self.entered = [], [], []
        self.free, self.promised, self.coming, self.now = self.c.kv_blocks, {}, 0, now
        return gone


def withdraw(node: Node, r: Request) -> None:
    """Take a waiting request out of its node."""
    if r in node.waiting:
        node.waiting.remove(r)
        if node.accounts:
            node.accounts[r.tenant].present -= 1
            node.accounts[r.tenant].queued -= 1
    else:
        node.entered.remove(r)


def lose(r: Request) -> None:
    r.recomputed += r.kv
    r.kv = r.blocks = 0
    r.status, r.returning, r.replay = "waiting", False, 0

"""The loop every policy lives in, in plain Python and whole numbers: ingest, admit, batch, execute, refill.

This is the referee of the compiled engine, so it is written for reading: no cleverness, no floating point clock
(picoseconds), attention pairs doubled (2A) so that they stay whole, one small function per rule and per policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tileq_reference.parts import BLOCK, Batch, Config, Cost, Request
from tileq_reference.prefix import Tree


class Simulator:
    """State and loop; policies act on it through `decode`, `prefill`, `admit` and `preempt`."""

    def __init__(self, requests: list[Request], config: Config, cost: Cost, policy: Callable[[Simulator], None]):
        self.c, self.cost, self.policy = config, cost, policy
        self.future = sorted(requests, key=lambda r: (r.arrival, r.id))
        self.requests = list(self.future)
        self.waiting: list[Request] = []
        self.running: list[Request] = []  # in order of admission
        self.free = config.kv_blocks  # idle blocks of the prefix cache included
        self.tree = Tree(config.prefix_tokens, config.prefix_tokens // BLOCK)
        self.now = 0
        self.batch = Batch()
        self.batches: list[Batch] = []
        self.busy = 0
        self.empties = 0  # batches in a row that were empty because somebody was preempted
        self.memo: dict[str, Any] = {}  # what a policy remembers between iterations
        self.fresh: list[Request] = []  # announced, not yet brought to the policy
        self.accounts = [Account(*row) for row in config.tenants]
        self.last_tenant: int | None = None
        self.fit = Fit(*config.control, config.budget) if config.control else None
        self.causes: list[list[int]] = []
        self.observe: Callable[[Simulator], None] | None = None

    # ---------------------------------------------------------------- loop

    def run(self, until: int | None = None, iterations: int = 10**9) -> Simulator:
        """Step until nothing can happen any more, or simulated time `until`."""
        while len(self.batches) < iterations and (until is None or self.now < until):
            self.ingest(self.now)
            self.batch = Batch(start=self.now)
            if self.in_system:  # nobody to decide about otherwise
                self.decide()
            if self.batch.items:
                self.empties = 0
                self.execute()
            elif self.batch.preempted and self.empties <= self.in_system:
                self.empties += 1  # what it gave back may let somebody run at once
            elif self.future:
                note(self, self.now, max(self.now, self.future[0].arrival), 0)
                self.now = max(self.now, self.future[0].arrival)
            else:
                break
        return self

    def decide(self) -> None:
        """Bring newcomers to the policy, set the budget, form the batch; a batch that is stuck evicts."""
        for r in self.fresh:
            welcome(self, r)
        self.fresh.clear()
        self.c = replace(self.c, budget=budget_now(self))
        self.policy(self)
        if self.batch.stuck and not self.batch.items:
            r, chunk, victim = self.batch.stuck
            if make_room(self, r, chunk, victim):
                self.prefill(r, chunk)

    def ingest(self, upto: int) -> None:
        while self.future and self.future[0].arrival <= upto:
            r = self.future.pop(0)
            r.target = r.prompt
            r.reason = self.turned_away(r)
            self.fresh += [] if r.reason else [r]
            if r.reason:
                r.status = "rejected"
            elif r.prefilled:
                r.status, r.kv = "running", r.prompt
                self.take(r, r.prompt)
                self.running.append(r)
            else:
                r.status = "waiting"
                self.waiting.append(r)

    @property
    def queued(self) -> int:
        return len(self.waiting)

    @property
    def in_system(self) -> int:
        return self.queued + len(self.running)

    def turned_away(self, r: Request) -> int:
        """0, or why not: longer than the model takes, than the cache, than a whole-prompt budget; system full."""
        if self.c.longest is not None and r.prompt + r.output > self.c.longest:
            return 1
        if self.peak_blocks(r) > self.c.kv_blocks:
            return 2
        whole = self.c.get("whole_budget")  # budget of a policy that never splits a prompt
        if whole and r.prompt > whole:
            return 3
        if self.c.queue_limit is not None and self.in_system >= self.c.queue_limit:
            return 4
        return {"reject": 6, "reroute": 7}.get(self.c.pressure[0], 0) if self.c.pressure and pressed(self) else 0

    def execute(self) -> None:
        b = self.batch
        n = max(b.tokens, b.padded_to)
        pairs2 = sum(t * (2 * r.kv + t + 1) for r, t, decode in b.items if not decode)
        kv = sum(r.kv + t for r, t, decode in b.items if decode or self.cost.kv_counts_prefill)
        took = self.cost(n, pairs2, kv, len(b.items)) + self.c.swap_ps_per_token * b.swapped_tokens
        note(self, self.now, self.now + took, 1, took)
        self.now += took
        self.busy += took
        if self.fit:
            self.fit.steer(b.tokens, b.decodes, self.c.budget, took)
        b.end, b.blocks_held = self.now, self.c.kv_blocks - self.free
        self.ingest(self.now - 1)  # who came during the iteration meets those who leave at its end
        if self.accounts:
            credit(self, b)
        place = {id(r): k for k, r in enumerate(self.running)}
        for r, tokens, decode in sorted(b.items, key=lambda item: place[id(item[0])]):  # in order of admission
            self.record(r, tokens, decode)
        self.batches.append(b)
        if self.observe:
            self.observe(self)

    def record(self, r: Request, tokens: int, decode: bool) -> None:
        r.kv += tokens
        if not decode:
            self.free += self.tree.keep(r)
        if not r.prefilling:
            r.touched = self.now
        if decode or (not r.prefilling and self.c.engine_convention):
            if r.replay:
                r.replay -= 1  # the reader has had this one
            else:
                r.generated += 1
                r.tokens_at.append(self.now)
        if not decode and not r.prefilling and r.prefill_end is None:
            r.prefill_end = self.now
        if r.generated >= r.output:
            self.leave(r)

    def leave(self, r: Request) -> None:
        r.status, r.done_at = "done", self.now
        self.free += self.tree.keep(r)
        self.running.remove(r)
        self.release(r)
        if self.accounts:
            self.accounts[r.tenant].present -= 1
            self.accounts[r.tenant].residents -= 1

    # ---------------------------------------------------------------- memory

    def peak_tokens(self, r: Request) -> int:
        """Most tokens the request ever holds: its last decode step's context."""
        return r.prompt + r.output - (1 if self.c.engine_convention else 0)

    def peak_blocks(self, r: Request) -> int:
        return -(-self.peak_tokens(r) // BLOCK)

    def missing(self, r: Request, kv: int) -> int:
        """Blocks `r` still needs to hold `kv` tokens; those of its cached prefix that others hold cost nothing."""
        return max(0, -(-kv // BLOCK) - r.blocks - self.spared(r))

    def spared(self, r: Request) -> int:
        return 0 if r.status == "running" else self.tree.shared(self.tree.found(r))

    def had(self, r: Request) -> int:
        """Tokens of a waiting request that are cached."""
        return len(self.tree.found(r)) * self.tree.tokens

    def todo(self, r: Request) -> int:
        """Tokens that a waiting request has to prefill."""
        return r.target - self.had(r)

    def take(self, r: Request, kv: int) -> bool:
        """Give `r` the blocks for `kv` tokens if they are free."""
        need = self.missing(r, kv)
        if need > self.free:
            return False
        r.blocks += need + self.spared(r)
        if r.status == "waiting":
            self.tree.claim(r)
        self.free -= need
        self.tree.evict(self.free)
        return True

    def release(self, r: Request) -> None:
        self.free += r.blocks - r.held * self.tree.blocks + self.tree.leave(r)
        r.blocks = r.reserved = 0

    def check(self) -> None:
        """Blocks used + free = total; every request holds exactly what its tokens need or more; counts make sense."""
        held = sum(r.blocks - r.held * self.tree.blocks for r in self.requests)
        held += self.tree.shared(list(self.tree.refs))
        self.tree.check(self.running, self.free)
        assert held + self.free == self.c.kv_blocks and self.free >= 0
        for r in self.requests:
            assert r.blocks * BLOCK >= r.kv or r.status in ("swapped", "done")
            assert (r.blocks == 0) or r.status == "running"
            assert r.generated == len(r.tokens_at) <= r.output

    # ---------------------------------------------------------------- what a policy may do

    def decode(self, r: Request) -> None:
        self.batch.items.append((r, 1, True))

    def prefill(self, r: Request, tokens: int) -> None:
        self.batch.items.append((r, tokens, False))

    def admit(self, r: Request) -> None:
        """Waiting -> running, at the end of the admission order."""
        self.waiting.remove(r)
        r.status, r.returning, r.touched = "running", False, self.now
        self.running.append(r)
        if self.accounts:
            seat(self, r)
        r.admitted = True

    def preempt(self, r: Request) -> None:
        """Take `r` off the running list: its blocks go back; recompute restarts it, swap keeps its tokens elsewhere."""
        restart = self.c.get("restart", False)  # WAIT: prompt and delivered tokens, one by one, from scratch
        swap = self.c.swap and not r.prefilling and not restart  # half a prompt is not worth carrying
        self.running.remove(r)
        if self.accounts:
            self.accounts[r.tenant].residents -= 1
            self.accounts[r.tenant].queued += 1
            r.seen = max(r.seen, r.kv)  # a node that keeps no accounts tells no other what it has computed
        self.free += self.tree.keep(r)
        self.batch.preempted.append(r.id)
        r.preemptions += 1
        place = 0
        if swap:
            r.status = "swapped"
            self.move(r)
            place = sum(x.status == "swapped" for x in self.waiting)  # they lead the queue, first out first
        else:
            r.status = "waiting"
            r.recomputed += r.kv
            r.kv, r.target = 0, r.prompt if restart else r.known
            r.replay = r.generated if restart else 0
        r.returning = True
        self.waiting.insert(place, r)
        self.release(r)

    def move(self, r: Request) -> None:
        """Carry the tokens of `r` one way between device and host."""
        self.batch.swapped_tokens += r.kv
        r.swapped_tokens += r.kv

    def decoding(self) -> list[Request]:
        return [r for r in self.running if not r.prefilling]

    def prefilling(self) -> list[Request]:
        return [r for r in self.running if r.prefilling]


from tileq_reference.accounts import Account, credit, seat, welcome  # noqa: E402  (they name this module's classes)
from tileq_reference.pressure import Fit, budget_now, note, pressed  # noqa: E402
from tileq_reference.rules import make_room  # noqa: E402

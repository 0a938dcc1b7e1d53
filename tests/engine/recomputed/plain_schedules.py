"""SLAI, vLLM v1, RAD, WAIT and the four policies of Dai's Fig. 8 once more, in plain Python from their descriptions.

Written without a look at the engine or at the reference beside it, each as one function on one kind of record, so that
an error of reading would have to be made three times. `run` is the clock; a schedule fills `m.batch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

BLOCK = 16


@dataclass
class Req:
    """One request: `todo` tokens are still to be prefilled (again), `cached` have KV, `out` are delivered."""

    i: int
    arrival: int
    prompt: int
    output: int
    limit: int = 0
    kind: int = 0
    todo: int = 0
    cached: int = 0
    out: int = 0
    blocks: int = 0
    lst: int = 0
    first: int = -1
    end: int = -1
    restarts: int = 0

    @property
    def decoding(self) -> bool:
        return self.todo == 0


@dataclass
class Machine:
    """Clock, queues, blocks, the batch being formed: (request, tokens, is a decode)."""

    free: int
    engine: bool = True
    now: int = 0
    waiting: list[Req] = field(default_factory=list)
    running: list[Req] = field(default_factory=list)
    batch: list[tuple[Req, int, bool]] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)
    arrivals_left: int = 0
    preempted: bool = False
    pad: int = 0

    def room_for(self, r: Req, tokens: int) -> bool:
        """Take the blocks for `tokens` more of `r` if they are free."""
        need = max(-(-(r.cached + tokens) // BLOCK) - r.blocks, 0)
        if need > self.free:
            return False
        self.free, r.blocks = self.free - need, r.blocks + need
        return True

    def evict(self, r: Req) -> None:
        """Recompute: everything known is prefilled again, from the front of the queue."""
        self.running.remove(r)
        self.batch = [b for b in self.batch if b[0] is not r]
        self.free, r.blocks = self.free + r.blocks, 0
        r.todo, r.cached, r.restarts = r.prompt + r.out, 0, r.restarts + 1
        self.waiting.insert(0, r)
        self.preempted = True

    def start(self, r: Req) -> None:
        self.waiting.remove(r)
        self.running.append(r)

    @property
    def tokens(self) -> int:
        return sum(t for _, t, _ in self.batch)


def run(
    requests: list[Req],
    schedule: Callable[[Machine], None],
    time: Callable[[int], int],
    blocks: int = 10**9,
    engine: bool = True,
    after: Callable[[Machine, Req, int], None] | None = None,
) -> list[tuple[int, list[tuple[int, int, bool]]]]:
    """Return [(start, sorted members)] of every iteration; `after(m, r, used)` is told of every token delivered."""
    m, ahead, told = Machine(blocks, engine), sorted(requests, key=lambda r: (r.arrival, r.i)), []
    for r in ahead:
        r.todo = r.todo or r.prompt
    while True:
        while ahead and ahead[0].arrival <= m.now:
            m.waiting.append(ahead.pop(0))
        m.batch, m.preempted, m.pad, m.arrivals_left = [], False, 0, len(ahead)
        if m.waiting or m.running:
            schedule(m)
        if not m.batch:
            if m.preempted:
                continue
            if not ahead:
                return told
            m.now = max(m.now, ahead[0].arrival)
            continue
        told.append((m.now, sorted((r.i, t, d) for r, t, d in m.batch)))
        m.durations.append(time(m.tokens + m.pad))
        m.now += m.durations[-1]
        used = blocks - m.free
        for r, t, decode in m.batch:
            r.cached += t
            r.todo -= 0 if decode else t
            token = decode or (r.todo == 0 and engine)
            if token:
                r.out += 1
                r.first = m.now if r.first < 0 else r.first
            if after and r.todo == 0:
                after(m, r, used)
            if token and r.out == r.output:
                r.end = m.now
                m.running.remove(r)
                m.free, r.blocks = m.free + r.blocks, 0


def vllm_v1(budget: int, slots: int, sequence: bool = False) -> Callable[[Machine], None]:
    """Residents in order, then the queue; the last admitted gives way; `sequence`: all that is known must fit."""

    def schedule(m: Machine) -> None:
        for r in list(m.running):
            if r not in m.running or m.tokens >= budget:
                continue
            want = min(max(r.todo, 1), budget - m.tokens)
            while r in m.running and not m.room_for(r, want):
                m.evict(m.running[-1])
            if r not in m.running:
                break
            m.batch.append((r, want, r.decoding))
        while m.waiting and not m.preempted and m.tokens < budget and len(m.running) < slots:
            r = m.waiting[0]
            want = min(r.todo, budget - m.tokens)
            if (sequence and -(-r.todo // BLOCK) > m.free) or not m.room_for(r, want):
                return
            m.start(r)
            m.batch.append((r, want, False))

    return schedule


def slai(budget: int, slots: int, cap: int, spf: bool, watermark: int = 0) -> Callable[[Machine], None]:
    """Critical decodes by last schedulable time; ongoing, then waiting prefills; the other decodes with the rest."""

    def schedule(m: Machine) -> None:
        decodes = sorted((r for r in m.running if r.decoding), key=lambda r: (r.lst, r.i))
        critical = [r for r in decodes if r.lst <= m.now][:cap]
        for r in critical:
            while r in m.running and not m.room_for(r, 1):
                prefills = [x for x in m.running if not x.decoding]
                m.evict(prefills[-1] if prefills else r)
            if r in m.running:
                m.batch.append((r, 1, True))
        for r in m.running:
            if not r.decoding and m.tokens < budget:
                m.batch.append((r, min(r.todo, budget - m.tokens), False))
        while m.waiting and not m.preempted and m.tokens < budget and len(m.running) < slots:
            back = [r for r in m.waiting if r.restarts]
            r = back[0] if back else min(m.waiting, key=lambda x: (x.prompt if spf else 0, x.i))
            if -(-r.todo // BLOCK) + (watermark if m.running else 0) > m.free or not m.room_for(r, r.todo):
                break
            m.start(r)
            m.batch.append((r, min(r.todo, budget - m.tokens), False))
        for r in decodes:
            served = [x for x, _, decode in m.batch if decode]
            if r in m.running and r not in served and m.tokens < budget and len(served) < cap:
                if m.room_for(r, 1):
                    m.batch.append((r, 1, True))
                elif not m.batch:
                    m.evict(r)

    return schedule


def slai_deadline(total_blocks: int) -> Callable[[Machine, Req, int], None]:
    """LST = completion + limit - Theta * mean batch time; Theta 5, or 10 from 96 % of the blocks on."""

    def after(m: Machine, r: Req, used: int) -> None:
        theta = 10 if 100 * used >= 96 * total_blocks else 5
        r.lst = m.now + r.limit - theta * sum(m.durations) // len(m.durations)

    return after


def rad(b_col: int, b_lcm: int, cycle: int | None) -> Callable[[Machine], None]:
    """Algorithm 1 with one prefill taken in when it is needed; a cycle takes in `cycle` requests and drains."""
    taken = [0]

    def schedule(m: Machine) -> None:
        taken[0] = taken[0] if m.running else 0
        decoding = [r for r in m.running if r.decoding]
        prefills = [r for r in m.running if not r.decoding]
        if not prefills and len(decoding) < b_col and m.waiting and (cycle is None or taken[0] < cycle):
            taken[0] += 1
            prefills = [m.waiting[0]]
            m.start(prefills[0])
        if len(decoding) < b_col and prefills:
            chunk = min(prefills[0].todo, b_lcm)
            m.batch, m.pad = [(prefills[0], chunk, False)], b_lcm - chunk
        else:
            m.batch = [(r, 1, True) for r in decoding]

    return schedule


def wait(thresholds: list[int]) -> Callable[[Machine], None]:
    """Type j moves, residents and n_j prompts, when n_j of its prompts have gathered; everything at the end."""

    def schedule(m: Machine) -> None:
        for kind, n in enumerate(thresholds):
            gathered = [r for r in m.waiting if r.kind == kind]
            if len(gathered) < n and m.arrivals_left:
                continue
            m.batch += [(r, 1, True) for r in m.running if r.kind == kind and r.decoding]
            for r in gathered[:n]:
                m.start(r)
                m.batch.append((r, r.todo, False))

    return schedule

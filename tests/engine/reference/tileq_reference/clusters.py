"""Clusters in plain Python: the single-engine referee as a node, one global list of events, no trees and no laziness.

At one instant: iterations end, transfers arrive, planned events happen, requests are routed, nodes decide.
"""

from __future__ import annotations

from typing import Any

from tileq_reference.cluster_node import FAR, Node, lose, withdraw
from tileq_reference.cluster_parts import M1, Fate, Link, Mrg32k3a
from tileq_reference.parts import Request


class ClusterReference:
    """The loop."""

    def __init__(
        self,
        requests: list[Request],
        nodes: list[Node],
        router: dict[str, Any],
        draws: list[int],
        *,
        decode_router: dict[str, Any] | None = None,
        link: Link | None = None,
        on_full: str = "reject",
        planned: list[tuple[int, int, int]] | None = None,
        keys: list[int] | None = None,
        gap: int = 2,
    ):
        self.future = sorted(requests, key=lambda r: (r.arrival, r.id))
        self.requests, self.nodes, self.link = list(self.future), nodes, link or Link()
        self.routers = (router, decode_router or {"name": "jsq"})
        self.rng, self.on_full, self.gap = Mrg32k3a(draws), on_full, gap
        self.planned, self.keys = list(planned or []), keys or []
        self.fate = {r.id: Fate() for r in requests}
        self.due: list[tuple[Request, int]] = []  # with where they must go, -1 for anywhere
        self.held: list[Request] = []
        self.wait: list[Request] = []
        self.flights: list[tuple[int, int, Request, int, tuple[int, int]]] = []
        self.transfers: list[tuple[int, ...]] = []
        self.ready: dict[int, int] = {}
        self.homes: dict[int, int] = {}
        self.moves: list[tuple[int, ...]] = []
        self.stranded: list[Request] = []
        self.turn, self.now, self.split = 0, 0, any(n.role == "decode" for n in nodes)

    # ------------------------------------------------------------ events

    def run(self) -> ClusterReference:
        while True:
            if self.due:
                r, target = self.due.pop(0)
                self.route(r, self.now, target)
                continue
            if self.step():
                continue
            return self

    def step(self) -> bool:
        ends = [(n.end, 0, k) for k, n in enumerate(self.nodes) if n.open]
        lands = [(end, i, k) for k, (end, i, *_) in enumerate(self.flights)]
        times = [
            (min(ends)[0] if ends else FAR, 0),
            (min(lands)[0] if lands else FAR, 1),
            (self.planned[0][0] if self.planned else FAR, 2),
            (self.future[0].arrival if self.future else FAR, 3),
            (min((n.now for n in self.nodes if n.due), default=FAR), 4),
        ]
        t, kind = min(times)
        if t >= FAR:
            return False
        self.now = t
        if kind == 0:
            self.end_of(min(ends)[2])
        elif kind == 1:
            self.land(min(lands)[2])
        elif kind == 2:
            self.plan(*self.planned.pop(0))
        elif kind == 3:
            self.route(self.future.pop(0), t)
        else:
            k = min(k for k, n in enumerate(self.nodes) if n.due and n.now == t)
            self.nodes[k].decide()
            self.after(k)
        return True

    def end_of(self, k: int) -> None:
        node = self.nodes[k]
        node.finish()
        nobody = not self.wait
        for r in node.handed:
            self.ready[r.id] = self.now
            self.fate[r.id].source = k
            self.wait.append(r)
        if node.handed and nobody:
            node.handed = []
            self.start_waiting()
        node.handed = []
        self.after(k)

    def after(self, k: int) -> None:
        node = self.nodes[k]
        while node.role == "decode" and self.wait:
            if self.too_long(self.wait[0]):
                self.give_up()
            elif node.fits(self.wait[0]):
                self.start(self.wait.pop(0), k)
            else:
                break
        if self.on_full == "hold" and node.role != "decode":
            self.fill(k)

    def fill(self, k: int) -> None:
        """Give node `k` those held for whom it has a place, first come first."""
        while found := next((r for r in self.held if self.place(k, r)), None):
            self.held.remove(found)
            self.route(found, self.now, k)

    def plan(self, t: int, kind: int, k: int) -> None:
        node = self.nodes[k]
        if kind == 1 and node.up:
            self.take_down(k)
        elif kind == 0 and not node.up:
            node.up, node.now = True, max(node.now, t)
            others = [
                n.passes / n.weight
                for j, n in enumerate(self.nodes)
                if j != k and n.up and self.pool(n) == self.pool(node)
            ]
            node.passes = max(node.passes, int(min(others, default=0.0) * node.weight))
            if node.role == "decode":
                self.start_waiting()
                return
            if self.on_full != "hold":
                self.due, self.held = [*self.due, *((r, -1) for r in self.held)], []
            else:
                self.fill(k)
        elif kind == 2:
            while self.rebalance():
                pass

    # ------------------------------------------------------------ routing

    def pool(self, node: Node) -> int:
        return int(node.role == "decode")

    def place(self, k: int, r: Request) -> bool:
        n = self.nodes[k]
        if not n.up or (n.c.queue_limit is not None and n.in_system + n.coming >= n.c.queue_limit):
            return False
        return not n.turns_away and self.could(k, r)

    def could(self, k: int, r: Request) -> bool:
        """Whether node `k`, were it up and empty, would take `r`."""
        n, rule = self.nodes[k], self.routers[0]
        if rule["name"] == "tenant" and k not in rule["groups"][self.keys[r.id]]:
            return False
        if n.role == "prefill":
            return r.prompt + r.generated <= n.c.kv_blocks * 16 and not self.too_long(r)
        return n.peak_tokens(r) <= n.c.kv_blocks * 16

    # ------------------------------------------------------------ who will never be served

    def ever(self, k: int) -> bool:
        return self.nodes[k].up or any(kind == 0 and who == k for _, kind, who in self.planned)

    def too_long(self, r: Request, ever: bool = False) -> bool:
        """Whether no decode node that is up or will be (`ever`: that there is) has the KV for `r`, which needs it."""
        all_of = [k for k, n in enumerate(self.nodes) if n.role == "decode"]
        reach = [self.nodes[k].c.kv_blocks * 16 for k in all_of if ever or self.ever(k)]
        node = self.nodes[0]
        needed = r.kv > 0 or r.output - r.generated > int(node.c.engine_convention)
        return bool(all_of) and needed and node.peak_tokens(r) > max(reach, default=0)

    def coming_entry(self, r: Request) -> bool:
        return any(self.ever(k) and self.could(k, r) for k, n in enumerate(self.nodes) if n.role != "decode")

    def give_up(self) -> None:
        """No decode node will ever have room for the first of those that wait."""
        r = self.wait.pop(0)
        k = self.fate[r.id].source
        node = self.nodes[k]
        node.free += node.held.pop(r.id)
        if not node.open and not node.due and node.in_system:
            node.now, node.due = self.now, True
        node.lost += r.kv
        lose(r)
        self.fate[r.id].node = k
        if self.coming_entry(r):
            self.due.append((r, -1))
        else:
            self.stranded.append(r)

    def load(self, k: int, by: str) -> float:
        n = self.nodes[k]
        used = {"queue": n.in_system + n.coming, "work": n.work, "passes": n.passes}.get(by)
        return (1 - n.free / n.c.kv_blocks if used is None else used) / n.weight

    def choose(self, pool: int, r: Request) -> int:
        rule = self.routers[pool]
        ups = [k for k, n in enumerate(self.nodes) if n.up and self.pool(n) == pool]
        if not ups:
            return -1
        name = rule["name"]
        if name in ("jsq", "least_work", "round_robin", "most_free"):
            by = {"jsq": "queue", "least_work": "work", "round_robin": "passes"}.get(name, "blocks")
            return min(ups, key=lambda k: (self.load(k, by), self.nodes[k].stamp, k))
        if name == "random":
            u = (self.rng() + 0.5) / M1 * sum(self.nodes[k].weight for k in ups)
            total = 0.0
            for k in ups:
                total += self.nodes[k].weight
                if total > u:
                    return k
            return ups[-1]
        if name == "tenant":
            group = list(rule["groups"][self.keys[r.id]])
            drawn = self.rng.sample(list(range(len(group))), rule["choices"])
            found = []
            for place in drawn:
                after = [group[(place + j) % len(group)] for j in range(len(group))]
                found += [k for k in after if self.nodes[k].up][:1]
            return min(found, key=lambda k: self.load(k, "queue")) if found else -1
        drawn = self.rng.sample(ups, rule.get("choices", 2))
        best = min(drawn, key=lambda k: self.load(k, rule.get("by", "queue")))
        if name == "prefix_affinity":
            home = self.homes.get(self.keys[r.id], -1)
            here, there = (self.nodes[k].in_system + self.nodes[k].coming for k in (home, best))
            if home >= 0 and self.nodes[home].up and here <= there + rule["slack"]:
                return home
            self.homes[self.keys[r.id]] = best
        return best

    def route(self, r: Request, now: int, target: int = -1) -> None:
        pool = int(self.split and r.kv > 0)
        apart = self.too_long(r)
        if apart and not self.coming_entry(r):
            if self.too_long(r, ever=True):
                r.status, r.reason = "rejected", 2
            else:
                self.stranded.append(r)
            return
        k = target if target >= 0 and self.nodes[target].up else self.choose(pool, r)
        if k >= 0 and (self.on_full != "reject" or self.nodes[k].passes_on or apart) and not self.place(k, r):
            room = [j for j, n in enumerate(self.nodes) if self.pool(n) == pool and self.place(j, r)]
            if room:
                k = min(room, key=lambda j: (self.nodes[j].in_system / self.nodes[j].weight, j))
                self.moves.append((r.id, now, 1))
            elif self.on_full == "hold" and self.coming_entry(r):
                k = -1
            elif apart:
                r.status, r.reason = "rejected", 4
                return
        if k < 0:
            (self.held if self.coming_entry(r) else self.stranded).append(r)
            return
        self.turn += 1
        node, fate = self.nodes[k], self.fate[r.id]
        node.stamp, node.passes = self.turn, node.passes + 1
        fate.node, fate.routed = k, fate.routed + 1
        node.enter(r, now)

    def rebalance(self) -> bool:
        ups = [k for k, n in enumerate(self.nodes) if n.up and n.role != "decode"]
        queued = [k for k in ups if self.nodes[k].waiting or self.nodes[k].entered]
        if not queued:
            return False
        size = lambda k: self.nodes[k].in_system / self.nodes[k].weight  # noqa: E731
        longest, shortest = max(queued, key=lambda k: (size(k), -k)), min(ups, key=lambda k: (size(k), k))
        node = self.nodes[longest]
        fresh = [r for r in [*node.waiting, *node.entered] if not r.returning and r.kv == 0]
        if longest == shortest or size(longest) - size(shortest) < self.gap or not fresh:
            return False
        other, r = self.nodes[shortest], max(fresh, key=lambda r: r.id)
        if (other.in_system + 1) / other.weight >= size(longest) or not self.place(shortest, r):
            return False
        withdraw(node, r)
        self.moves.append((r.id, self.now, 2))
        self.route(r, self.now, shortest)
        return True

    # ------------------------------------------------------------ between the pools

    def start_waiting(self) -> None:
        while self.wait:
            r = self.wait[0]
            if self.too_long(r):
                self.give_up()
                continue
            first = self.choose(1, r)
            ups = [k for k, n in enumerate(self.nodes) if n.fits(r) and n.role == "decode"]
            if not ups:
                return
            self.start(self.wait.pop(0), first if first in ups else ups[0])

    def start(self, r: Request, k: int) -> None:
        node, need = self.nodes[k], self.nodes[k].aside(r)
        node.free -= need
        node.promised[r.id] = need
        node.coming += 1
        self.turn += 1
        node.stamp, node.passes = self.turn, node.passes + 1
        begin, end = self.link.send(self.fate[r.id].source, k, r.kv, self.now)
        self.flights.append((end, r.id, r, k, (begin, self.now)))

    def land(self, at: int) -> None:
        end, _, r, k, (begin, _) = self.flights.pop(at)
        source = self.nodes[self.fate[r.id].source]
        self.log(r, k, begin, end)
        source.free += source.held.pop(r.id)
        if not source.open and not source.due and source.in_system:
            source.now, source.due = end, True
        self.nodes[k].coming -= 1
        self.fate[r.id].node = k
        if self.on_full == "hold":
            self.fill(self.fate[r.id].source)
        self.nodes[k].enter(r, end)

    def log(self, r: Request, k: int, begin: int, end: int) -> None:
        source = self.fate[r.id].source
        self.transfers.append((r.id, source, k, self.ready[r.id], begin, end, r.kv, self.nodes[source].held[r.id]))

    def take_down(self, k: int) -> None:
        node = self.nodes[k]
        for place in (("out", k), ("in", k)):
            self.link.free[place] = 0
        broken = sorted((f for f in self.flights if f[3] == k or self.fate[f[1]].source == k), key=lambda f: f[1])
        self.flights = [f for f in self.flights if f not in broken]
        for _, _, r, target, (begin, _) in broken:
            self.log(r, target, begin, -1)
            self.nodes[target].coming -= 1
            self.nodes[target].free += self.nodes[target].promised.pop(r.id)
        stranded = [f[2] for f in broken] + self.wait
        self.wait = [r for r in stranded if self.fate[r.id].source != k]
        again = [r for r in stranded if self.fate[r.id].source == k]
        for r in again:
            node.lost += r.kv
            lose(r)
            self.fate[r.id].node = k
        node.held = {}
        self.due += [(r, -1) for r in [*again, *node.fail(self.now)]]
        if not self.ever(k):
            self.stranded += [r for r in self.held if not self.coming_entry(r)]
            self.held = [r for r in self.held if self.coming_entry(r)]
        self.start_waiting()

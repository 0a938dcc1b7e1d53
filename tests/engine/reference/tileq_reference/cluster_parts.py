"""What a cluster in plain Python consists of beside its nodes: random numbers, the link, a request's places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

M1, M2 = 4294967087, 4294944443


class Mrg32k3a:
    """L'Ecuyer's combined generator, from its definition."""

    def __init__(self, state: list[int]):
        self.a, self.b = state[:3], state[3:]

    def __call__(self) -> int:
        p = (1403580 * self.a[1] - 810728 * self.a[0]) % M1
        q = (527612 * self.b[2] - 1370589 * self.b[0]) % M2
        self.a, self.b = [*self.a[1:], p], [*self.b[1:], q]
        return (p - q) % M1

    def sample(self, population: list[int], count: int) -> list[int]:
        """Without replacement."""
        left, found = list(population), []
        while left and len(found) < count:
            found.append(left.pop(self() * len(left) // M1))
        return found


@dataclass
class Link:
    """Three FIFO servers in a row, cut-through, and a delay."""

    port_ps: float = 0.0
    fabric_ps: float = 0.0
    latency: int = 0
    free: dict[Any, int] = field(default_factory=dict)

    def send(self, source: int, target: int, tokens: int, now: int) -> tuple[int, int]:
        """(begin, end)."""
        begin = end = now
        here = now
        for place, per_token in (
            (("out", source), self.port_ps),
            ("fabric", self.fabric_ps),
            (("in", target), self.port_ps),
        ):
            start = max(begin if place == ("out", source) else here, self.free.get(place, 0))
            here = start
            if place == ("out", source):
                begin = start
            self.free[place] = start + int(tokens * per_token + 0.5)
            end = max(end, self.free[place])
        return begin, end + self.latency


@dataclass
class Fate:
    """Where a request has been."""

    node: int = -1
    source: int = -1
    routed: int = 0

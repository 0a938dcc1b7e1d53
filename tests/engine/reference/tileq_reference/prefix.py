"""Prefix caching: blocks that several requests begin with are kept once, and found again; the oldest idle ones go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Node = tuple[int, ...]  # a block, named by everything up to its end


@dataclass
class Tree:
    """Who refers to which kept block; idle ones (nobody does) in the order in which they were let go."""

    tokens: int  # of a block; 0: there is no prefix cache
    blocks: int  # KV blocks it takes
    refs: dict[Node, int] = field(default_factory=dict)
    idle: list[Node] = field(default_factory=list)

    def found(self, r: Any) -> list[Node]:
        """The longest kept prefix of a request that is about to be prefilled; its last token is always computed."""
        if not self.tokens or r.status == "swapped":
            return []
        nodes = []
        for node in nodes_of(r.path, (r.target - 1) // self.tokens):
            if node not in self.refs:
                break
            nodes.append(node)
        return nodes

    def claim(self, r: Any) -> None:
        """Let `r` refer to what is found of it."""
        nodes = self.found(r)
        for node in nodes:
            self.refer(node)
        r.held, r.kv = len(nodes), len(nodes) * self.tokens
        r.hit_tokens += r.kv

    def refer(self, node: Node) -> None:
        if self.refs.get(node) == 0:
            self.idle.remove(node)
        self.refs[node] = self.refs.get(node, 0) + 1

    def keep(self, r: Any) -> int:
        """Keep the blocks that `r` has filled by now; the blocks that become free as others had them already."""
        if not self.tokens:
            return 0
        freed = 0
        for node in list(nodes_of(r.path, r.kv // self.tokens))[r.held :]:
            freed += self.blocks if self.refs.get(node, 0) > 0 else 0
            self.refer(node)
            r.held += 1
        return freed

    def leave(self, r: Any) -> int:
        """End the references of `r`, the end of its path first; the blocks that nobody refers to any more."""
        freed = 0
        for node in reversed(list(nodes_of(r.path, r.held))):
            self.refs[node] -= 1
            if self.refs[node] == 0:
                self.idle.append(node)
                freed += self.blocks
        r.held = 0
        return freed

    def evict(self, free: int) -> None:
        """Give up idle blocks, the first let go first, until the free blocks hold those that are left."""
        while len(self.idle) * self.blocks > free:
            del self.refs[self.idle.pop(0)]

    def shared(self, nodes: list[Node]) -> int:
        """KV blocks of those that somebody refers to."""
        return self.blocks * sum(self.refs[node] > 0 for node in nodes)

    def check(self, residents: list[Any], free: int) -> None:
        """References are those of the residents; with a block all before it are kept; idle blocks are free ones."""
        for node, refs in self.refs.items():
            assert refs == sum(r.path[: len(node)] == node and r.held >= len(node) for r in residents)
            assert len(node) == 1 or self.refs[node[:-1]] >= refs
        assert sorted(self.idle) == sorted(node for node, refs in self.refs.items() if refs == 0)
        assert len(self.idle) * self.blocks <= free
        assert all(self.idle.index(n) < self.idle.index(n[:-1]) for n in self.idle if n[:-1] in self.idle)

    def without(self, residents: list[Any], question: Callable[[int], bool]) -> bool:
        """The answer to `question` (given the blocks that come free) if `residents` had left."""
        before = dict(self.refs)
        freed = 0
        for r in residents:
            freed += r.blocks - r.held * self.blocks
            for node in nodes_of(r.path, r.held):
                self.refs[node] -= 1
                freed += self.blocks if self.refs[node] == 0 else 0
        answer = question(freed)
        self.refs = before
        return answer


def nodes_of(path: Node, count: int) -> Iterator[Node]:
    """The first `count` nodes of a path, as far as it goes."""
    return (path[: k + 1] for k in range(min(count, len(path))))

"""The paged KV cache with prefixes: blocks outlive their owners and are found again by a hash of all before them."""

from __future__ import annotations

__all__ = ["PrefixKvCache"]

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from tileq_engine.kv import KvCache, KvError


class PrefixKvCache(KvCache):
    """`KvCache` whose full blocks can be kept under a key, attached to later requests and given up when room is needed.

    A key stands for a block and everything before it (a prefix-chained hash). A kept block that nobody owns is idle:
    it counts as free, and is given up for want of another, the one let go first; a request's blocks are let go from
    its last one on, so that a block is never given up before those that follow it. The compiled core decides the same
    by counting (`prefix_tree`).

    Examples
    --------
    >>> cache = PrefixKvCache(blocks=4, block_tokens=16)
    >>> cache.grow(7, 40)
    [0, 1, 2]
    >>> cache.commit(7, ["a", "ab"])
    []
    >>> cache.release(7)
    >>> cache.find(["a", "ac"]), cache.attach(8, ["a", "ab", "abc"]), cache.free_blocks
    (1, [0, 1], 2)
    """

    def __init__(self, *, blocks: int, block_tokens: int = 16, host_blocks: int = 0, gap: int = 1) -> None:
        super().__init__(blocks=blocks, block_tokens=block_tokens, host_blocks=host_blocks, gap=gap)
        self._block_of: dict[Hashable, int] = {}
        self._key_of: dict[int, Hashable] = {}
        self._before: dict[Hashable, Hashable | None] = {}  # key of the block before it
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def kept_blocks(self) -> int:
        """Blocks that can be found, owned or idle."""
        return len(self._block_of)

    @property
    def idle_blocks(self) -> int:
        """Blocks that can be found and that nobody owns."""
        return len(self._idle)

    def find(self, keys: Sequence[Hashable]) -> int:
        """Return how many of the leading keys have a block."""
        found = 0
        while found < len(keys) and keys[found] in self._block_of:
            found += 1
        return found

    def attach(self, request: int, keys: Sequence[Hashable]) -> list[int]:
        """Give a new request the kept blocks of its leading keys by reference; return them."""
        if request in self._tables or request in self._host:
            raise KvError(f"request {request} owns blocks already; only a new request can be given a prefix")
        blocks = [self._block_of[key] for key in keys[: self.find(keys)]]
        for block in blocks:
            self._idle.pop(block, None)
            self._owners[block] += 1
        if blocks:
            self._tables[request] = list(blocks)
            self._tokens[request] = len(blocks) * self.block_tokens
        return blocks

    def commit(self, request: int, keys: Sequence[Hashable]) -> list[tuple[int, int]]:
        """Keep the request's leading full blocks under `keys`; return (place, block) where another's took over.

        A block that somebody else has computed meanwhile is given back, and his stands in the request's table: it
        holds the same tokens after the same tokens.
        """
        table = self._tables.get(request, [])
        if len(keys) * self.block_tokens > self.tokens(request):
            raise KvError(f"request {request} holds {self.tokens(request)} tokens; {len(keys)} blocks are not full")
        replaced = []
        for place, key in enumerate(keys):
            own, kept = table[place], self._block_of.get(key)
            if kept is None:
                if own in self._key_of:
                    raise KvError(f"block {own} of request {request} is kept under another key already")
                self._block_of[key], self._key_of[own] = own, key
                self._before[key] = keys[place - 1] if place else None
            elif kept != own:
                self._idle.pop(kept, None)
                self._owners[kept] += 1
                table[place] = kept
                self._drop(own)
                replaced.append((place, kept))
        return replaced

    def _unowned(self) -> int:
        return len(self._free) + len(self._idle)

    def _take(self, wanted: int = -1) -> int:
        if not self._free:
            block, _ = self._idle.popitem(last=False)
            key = self._key_of.pop(block)
            del self._block_of[key], self._before[key]
            self._free[block] = None
        return super()._take(wanted)

    def _drop(self, block: int) -> None:
        if self._owners[block] == 1 and block in self._key_of:
            self._owners[block] = 0
            self._idle[block] = None
        else:
            super()._drop(block)

    def check(self) -> None:
        """Prove the invariants of `KvCache`, and that what is kept is found, a tree, and idle when nobody owns it."""
        super().check()
        if {block: key for key, block in self._block_of.items()} != self._key_of:
            raise KvError("a kept block is found under another key than its own")
        if set(self._idle) != {block for block in self._key_of if self._owners[block] == 0}:
            raise KvError("the idle blocks are not the kept ones that nobody owns")
        for key, before in self._before.items():
            if before is not None and before not in self._block_of:
                raise KvError(f"block {self._block_of[key]} is kept, and the one before it is not")

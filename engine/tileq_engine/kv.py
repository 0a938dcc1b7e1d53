"""The paged KV cache: blocks, owners, reference counts, swap space; what a real executor's block tables come from.

The compiled core only counts blocks per request; this class holds the blocks themselves, and both agree.
"""

from __future__ import annotations

__all__ = ["KvCache", "KvError"]

from collections import Counter

import numpy as np
from jaxtyping import Int

from tileq_theory.errors import InputError, positive_int


class KvError(InputError):
    """A request asked the cache for what it cannot give."""


class KvCache:
    """Blocks of `block_tokens` tokens; a request owns a table of them, shared prefix blocks count their owners.

    Parameters
    ----------
    blocks
        Blocks on the device.
    block_tokens
        Tokens a block holds.
    host_blocks
        Blocks of swap space on the host.
    gap
        New requests begin so many blocks apart while there is room. A request that grows gets the block after its last
        one if nobody owns it: what lies in a row is read faster than what is scattered.

    Examples
    --------
    >>> cache = KvCache(blocks=4, block_tokens=16)
    >>> cache.grow(7, 20), cache.free_blocks
    ([0, 1], 2)
    >>> cache.release(7)
    >>> cache.free_blocks
    4
    """

    def __init__(self, *, blocks: int, block_tokens: int = 16, host_blocks: int = 0, gap: int = 1) -> None:
        self.blocks = positive_int("blocks", blocks)
        self.block_tokens = positive_int("block_tokens", block_tokens)
        self.host_blocks = int(host_blocks)
        step = positive_int("gap", gap)
        order = [block for first in range(min(step, self.blocks)) for block in range(first, self.blocks, step)]
        self._free = dict.fromkeys(reversed(order))  # the last one is taken first
        self._owners = [0] * self.blocks
        self._tables: dict[int, list[int]] = {}
        self._tokens: dict[int, int] = {}
        self._host: dict[int, int] = {}  # request -> tokens swapped out

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody owns."""
        return self._unowned()

    @property
    def used_blocks(self) -> int:
        """Blocks that somebody owns."""
        return self.blocks - self._unowned()

    @property
    def host_blocks_used(self) -> int:
        """Blocks of swap space in use."""
        return sum(self.blocks_for(t) for t in self._host.values())

    def blocks_for(self, tokens: int) -> int:
        """Return ceil(tokens / block_tokens)."""
        return -(-tokens // self.block_tokens)

    def tokens(self, request: int) -> int:
        """Return the tokens `request` has room for on the device by its own growth (0 when it owns nothing)."""
        return self._tokens.get(request, 0)

    def table(self, request: int) -> list[int]:
        """Return the block table of `request`, in order of its tokens."""
        return list(self._tables.get(request, ()))

    def can_grow(self, request: int, tokens: int) -> bool:
        """Return whether `request` could hold `tokens` tokens in all."""
        return self._need(request, tokens) <= self._unowned()

    def _need(self, request: int, tokens: int) -> int:
        table = self._tables.get(request, ())
        need = max(0, self.blocks_for(tokens) - len(table))
        if need == 0 and not table:
            return 0
        return need + int(self._writes_shared(request, tokens))

    def _writes_shared(self, request: int, tokens: int) -> bool:
        """Return whether growing to `tokens` writes into a partly filled block that others read too."""
        held = self.tokens(request)
        return tokens > held and held % self.block_tokens != 0 and self._owners[self._tables[request][-1]] > 1

    def grow(self, request: int, tokens: int) -> list[int]:
        """Make room for `tokens` tokens of `request` in all; return its new blocks.

        A partly filled block that is shared is replaced by a block of its own (the caller copies its contents:
        it is the first of the returned blocks then).
        """
        if request in self._host:
            raise KvError(f"request {request} is swapped out; swap it in before it grows")
        if not self.can_grow(request, tokens):
            need = self._need(request, tokens)
            raise KvError(f"request {request} needs {need} blocks and {self._unowned()} are free; preempt first")
        table = self._tables.setdefault(request, [])
        new: list[int] = []
        if table and self._writes_shared(request, tokens):
            self._drop(table.pop())
            new.append(self._take())
            table.append(new[0])
        while len(table) < self.blocks_for(tokens):
            new.append(self._take(table[-1] + 1 if table else -1))
            table.append(new[-1])
        self._tokens[request] = max(tokens, self.tokens(request))
        return new

    def fork(self, parent: int, child: int, tokens: int) -> list[int]:
        """Give `child` the first `tokens` tokens of `parent` by reference; return the shared blocks."""
        if child in self._tables or child in self._host:
            raise KvError(f"request {child} owns blocks already; only a new request can share a prefix")
        if not 0 < tokens <= self.tokens(parent):
            raise KvError(f"request {parent} holds {self.tokens(parent)} tokens; a prefix of {tokens} cannot be shared")
        shared = self._tables[parent][: self.blocks_for(tokens)]
        for block in shared:
            self._owners[block] += 1
        self._tables[child] = list(shared)
        self._tokens[child] = tokens
        return list(shared)

    def release(self, request: int) -> None:
        """Give back all that `request` owns, on the device and on the host."""
        for block in reversed(self._tables.pop(request, ())):
            self._drop(block)
        self._tokens.pop(request, None)
        self._host.pop(request, None)

    def swap_out(self, request: int) -> list[int]:
        """Move `request` to the host; return its device blocks, whose contents the caller copies first."""
        if request not in self._tables:
            raise KvError(f"request {request} owns no device block; there is nothing to swap out")
        need = self.blocks_for(self._tokens[request])
        if self.host_blocks_used + need > self.host_blocks:
            raise KvError(
                f"request {request} needs {need} host blocks and {self.host_blocks - self.host_blocks_used} are free"
            )
        table = self._tables.pop(request)
        for block in reversed(table):
            self._drop(block)
        self._host[request] = self._tokens.pop(request)
        return table

    def swap_in(self, request: int) -> list[int]:
        """Bring `request` back; return its new device blocks."""
        if request not in self._host:
            raise KvError(f"request {request} is not swapped out")
        tokens = self._host[request]
        if self.blocks_for(tokens) > self._unowned():
            raise KvError(f"request {request} needs {self.blocks_for(tokens)} blocks and {self._unowned()} are free")
        del self._host[request]
        return self.grow(request, tokens)

    def slots(self, request: int, start: int, stop: int) -> Int[np.ndarray, "token"]:
        """Return the flat cache slots of tokens start..stop-1 of `request`: block * block_tokens + offset."""
        if not 0 <= start <= stop <= self.tokens(request):
            raise KvError(f"request {request} holds {self.tokens(request)} tokens; {start}..{stop} is outside")
        at = np.arange(start, stop)
        table = np.asarray(self._tables.get(request, [0]), dtype=np.int64)
        slots: np.ndarray = table[at // self.block_tokens] * self.block_tokens + at % self.block_tokens
        return slots

    def _unowned(self) -> int:
        return len(self._free)

    def _take(self, wanted: int = -1) -> int:
        """Return a free block, `wanted` if it is one."""
        block = wanted if wanted in self._free else next(reversed(self._free))
        del self._free[block]
        self._owners[block] = 1
        return block

    def _drop(self, block: int) -> None:
        self._owners[block] -= 1
        if self._owners[block] == 0:
            self._free[block] = None

    def check(self) -> None:
        """Prove the invariants, or raise `KvError`.

        used + free = total; a block's reference count is the number of tables it stands in; no table holds a block
        twice; a free block is in no table; every table covers its tokens and no more.
        """
        counts = Counter(block for table in self._tables.values() for block in table)
        for block in range(self.blocks):
            if counts[block] != self._owners[block]:
                raise KvError(f"block {block} stands in {counts[block]} tables and counts {self._owners[block]} owners")
        if any(self._owners[block] for block in self._free) or self._unowned() + len(counts) != self.blocks:
            raise KvError(
                f"{self._unowned()} free and {len(counts)} used blocks of {self.blocks}; a block is lost or both"
            )
        for request, table in self._tables.items():
            if len(set(table)) != len(table):
                raise KvError(f"request {request} owns a block twice")
            if len(table) != self.blocks_for(self._tokens[request]):
                raise KvError(f"request {request} holds {self._tokens[request]} tokens in {len(table)} blocks")
        if self.host_blocks_used > self.host_blocks:
            raise KvError(f"{self.host_blocks_used} host blocks are used of {self.host_blocks}")

"""What the loop works on: a request, the cost of an iteration, the settings of a run, a batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

BLOCK = 16
UNLIMITED = 1 << 40


@dataclass
class Request:
    """One request: what it asks, what is known of it, and how far it has come."""

    id: int
    arrival: int  # ps
    prompt: int
    output: int
    priority: int = 0  # smaller is served first
    paying: bool = False
    tbt_limit: int = 0  # ps; 0: none given
    predicted: int | None = None  # predicted output; None: the true one
    kind: int = 0  # class: the type of WAIT
    prefilled: bool = False  # arrives with its prompt in the cache
    path: tuple[int, ...] = ()  # its full blocks, for a prefix cache
    # progress
    kv: int = 0  # tokens in the cache
    target: int = 0  # tokens to prefill in this incarnation: prompt, plus generated ones after a recompute
    generated: int = 0
    blocks: int = 0
    status: str = "future"  # future, waiting, running, swapped, done, rejected
    returning: bool = False  # waits after a preemption, before those who have never run
    lst: int = 0  # SLAI: last schedulable time of the next token
    reserved: int = 0  # blocks promised by conservative admission
    touched: int = 0  # when its last token or the end of its prefill completed, or it was admitted since
    prefill_end: int | None = None
    tokens_at: list[int] = field(default_factory=list)
    done_at: int | None = None
    preemptions: int = 0
    replay: int = 0  # delivered tokens to compute again after a restart from scratch (WAIT)
    reason: int = 0  # why it was turned away: 1 model's length, 2 cache, 3 budget, 4 system full
    recomputed: int = 0  # cached tokens thrown away
    swapped_tokens: int = 0  # out and back, each way counted
    tenant: int = 0
    admitted: bool = False  # ever
    seen: int = 0  # most tokens cached in an earlier life
    hit_tokens: int = 0  # found in the prefix cache, over all lives
    held: int = 0  # blocks of its path that it refers to in the prefix cache

    @property
    def prefilling(self) -> bool:
        return self.kv < self.target

    @property
    def known(self) -> int:
        """Tokens whose values are known: the prompt and what was generated."""
        return self.prompt + self.generated

    @property
    def gaps(self) -> list[int]:
        return [b - a for a, b in zip(self.tokens_at, self.tokens_at[1:], strict=False)]


@dataclass(frozen=True)
class Cost:
    """t = c + max(w, a ceil(n/b) + beta n) + e A + k K + s m; coefficients in ps, rounded once to the nearest ps."""

    c: float = 0
    w: float = 0
    a: float = 0
    b: int = 1
    beta: float = 0
    e: float = 0
    k: float = 0
    s: float = 0
    kv_counts_prefill: bool = False

    def __call__(self, n: int, pairs2: int, kv: int, m: int) -> int:
        linear = max(self.w, self.a * -(-n // self.b) + self.beta * n)
        return math.floor(self.c + linear + self.e * (0.5 * pairs2) + self.k * kv + self.s * m + 0.5)


@dataclass(frozen=True)
class Config:
    """Every setting a policy may read; what a policy does not use it ignores."""

    policy: str = "sarathi"
    budget: int = 512
    max_seqs: int = 128
    kv_blocks: int = UNLIMITED
    watermark: int = 0  # blocks that an admission must leave free
    engine_convention: bool = True
    swap: bool = False
    preempt: bool = True  # False: nobody is ever preempted, a decode without a block waits
    swap_ps_per_token: int = 0
    queue_limit: int | None = None  # requests in system beyond which an arrival is turned away
    prefix_tokens: int = 0  # tokens of a block of the prefix cache; 0: there is none
    longest: int | None = None  # prompt + output beyond which an arrival is turned away
    reservation: str = "policy"  # or optimistic, prompt, conservative: blocks taken at admission
    tenants: tuple[tuple[int, int, int, int], ...] = ()  # charge of a prompt token, of an output token, quota, start
    pressure: tuple[str, int, int, int] | None = None  # action, waiting, blocks used from which on, shrunk budget
    control: tuple[int, int, int] | None = None  # limit in ps, least and most tokens
    watch: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        return self.extra.get(name, default)


@dataclass
class Batch:
    """One iteration: (request, tokens, is decode) in the order scheduled."""

    items: list[tuple[Request, int, bool]] = field(default_factory=list)
    swapped_tokens: int = 0
    padded_to: int = 0
    start: int = 0
    end: int = 0
    preempted: list[int] = field(default_factory=list)
    blocks_held: int = 0  # while it ran
    stuck: tuple[Request, int, Callable[..., Request]] | None = None  # a prefill without a block for its next chunk

    @property
    def tokens(self) -> int:
        return sum(t for _, t, _ in self.items)

    @property
    def decodes(self) -> int:
        return sum(1 for _, _, decode in self.items if decode)

    def holds(self, r: Request) -> bool:
        return any(x is r for x, _, _ in self.items)

    def withdraw(self, r: Request) -> int:
        """Take `r` out of the batch; return the tokens it had."""
        tokens = sum(t for x, t, _ in self.items if x is r)
        self.items = [i for i in self.items if i[0] is not r]
        return tokens

    def trace(self) -> tuple[tuple[int, int, bool], ...]:
        """(id, tokens, decode) of every member, by id: what two simulators must agree on."""
        return tuple(sorted((r.id, t, d) for r, t, d in self.items))

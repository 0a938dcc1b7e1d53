"""What a prefix cache leaves to compute: from the words of `--prefix-cache` to a workload with hits.

The hits of a trace come from its block identities, those of conversations from their law
(`tileq_theory.prefix_cache`); a share is taken as given. Memory that residents share is counted once. How much that
is depends on how many there are, and these on the plan, so the two are computed in turn until they agree.
"""

from __future__ import annotations

__all__ = ["CacheAnswer", "PrefixCache", "cached_plan", "parse_prefix_cache"]

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tileq.routed_hits import TOGETHER, conversation_law, trace_law
from tileq.traffic import Traffic
from tileq_theory.errors import InputError, finite

if TYPE_CHECKING:
    from tileq_theory.capacity import TilePlan
    from tileq_theory.prefix_cache import CachedLengths, Conversations

_ROUNDS = 12
_AGREE = 1e-3  # relative change of the residents below which the plan is not made again
_EXPECTED = "expected off, infinite, kv, a number of tokens as 500000, or a share of the prompts as 40%"


@dataclass(frozen=True, slots=True)
class PrefixCache:
    """What was asked: an "infinite" cache, the "kv" memory, a cache of so many "tokens", or a "share" of hits."""

    kind: Literal["infinite", "kv", "tokens", "share"]
    amount: float = math.nan

    @property
    def label(self) -> str:
        """The words of the option."""
        amounts = {"tokens": f"{self.amount:.10g}", "share": f"{100 * self.amount:.10g}%"}
        return amounts.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True, eq=False)
class CacheAnswer:
    """What the cache does to a plan.

    Parameters
    ----------
    cache
        What was asked.
    without
        The plan of the same question without a cache.
    cache_tokens
        Tokens of prompts and kept answers that one replica caches; None: no limit, or a share.
    reach_requests
        Requests back to which the cache remembers; None: all of them, or a share.
    hit_tokens, hit_share
        Mean prompt tokens found, and as a share of prompt tokens.
    shared_tokens
        Mean prompt tokens that other residents hold at the same time.
    warnings
        What was assumed.
    router
        What sends requests to several replicas, of whose caches each keeps its own; None: one replica, or a share.
    """

    cache: PrefixCache
    without: TilePlan
    cache_tokens: float | None
    reach_requests: float | None
    hit_tokens: float
    hit_share: float
    shared_tokens: float
    warnings: tuple[str, ...]
    router: str | None = None

    def to_dict(self, tile: TilePlan) -> dict[str, Any]:
        """Return the section `prefix_cache` of the plan's document; `tile` is the plan with the cache."""
        before, after = self.without.capacity, tile.capacity
        return {
            "cache": self.cache.label,
            "router": self.router,
            "cache_tokens": self.cache_tokens,
            "reach_requests": self.reach_requests,
            "hit_tokens": self.hit_tokens,
            "hit_share": self.hit_share,
            "shared_tokens": self.shared_tokens,
            "rate_gain": after.rate_per_s / before.rate_per_s - 1,
            "without": {
                "rate_per_s": before.rate_per_s,
                "binding": before.binding,
                "token_budget": self.without.token_budget,
                "max_num_seqs": self.without.max_num_seqs,
                "tile": self.without.to_dict()["tile"],
                "residents": self.without.residents,
                "ttft_floor_s": self.without.ttft_floor_s,
            },
        }


def parse_prefix_cache(given: str | float | PrefixCache | None) -> PrefixCache | None:
    """Return what `--prefix-cache` asks for; None for no cache.

    Examples
    --------
    >>> parse_prefix_cache("40%").kind, parse_prefix_cache(500000).label, parse_prefix_cache("off")
    ('share', '500000', None)
    """
    if given is None or isinstance(given, PrefixCache):
        return given
    text = str(given).strip().lower()
    if text == "off":
        return None
    if text in ("infinite", "kv"):
        return PrefixCache(text)  # type: ignore[arg-type]
    is_share = text.endswith("%")
    try:
        amount = finite("prefix cache", float(text.removesuffix("%")))
    except (ValueError, InputError):
        raise InputError(f"prefix cache is {given!r}; {_EXPECTED}") from None
    if is_share:
        if not 0 <= amount <= 100:
            raise InputError(f"prefix cache is {given!r}; expected a share between 0% and 100%")
        return PrefixCache("share", amount / 100)
    if amount < 1:
        raise InputError(f"prefix cache is {given!r} tokens; {_EXPECTED}")
    return PrefixCache("tokens", amount)


def cached_plan(
    traffic: Traffic,
    cache: PrefixCache,
    without: TilePlan,
    *,
    rate_per_s: float | None,
    kv_tokens: float,
    router: str = "session_affinity",
    solve: Callable[[Traffic], TilePlan],
) -> tuple[Traffic, TilePlan, CacheAnswer]:
    """Return the traffic with its hits, its plan, and what the cache does.

    Parameters
    ----------
    traffic, without
        The traffic, and its plan without a cache.
    rate_per_s
        Offered rate over all nodes, where known; a finite cache of conversations forgets in time, at capacity
        otherwise.
    kv_tokens
        KV memory of one replica, tokens.
    router
        Which replica is sent which request: a name of the engine's `router_names()`.
    solve
        Makes the plan of a traffic.
    """
    hits = _hits(traffic, cache, without, kv_tokens, router)
    found, tile = traffic, without
    for _ in range(_ROUNDS):
        rate = tile.capacity.rate_per_s if rate_per_s is None or rate_per_s <= 0 else rate_per_s
        law, reach = hits.law(tile.residents, rate)
        found = _with_law(traffic, law)
        before, tile = tile, solve(found)
        if abs(tile.residents / before.residents - 1) < _AGREE and found is not traffic:
            break
    nodes = without.capacity.limits.nodes
    shared = float(law.weights @ law.shared_tokens)
    return (
        found,
        tile,
        CacheAnswer(
            cache=cache,
            without=without,
            cache_tokens=hits.cache_tokens,
            reach_requests=reach if math.isfinite(reach) else None,
            hit_tokens=float(law.weights @ law.cached_tokens),
            hit_share=law.hit_share,
            shared_tokens=shared,
            warnings=tuple(hits.warnings(nodes)),
            router=None if nodes == 1 or cache.kind == "share" else router,
        ),
    )


def _with_law(traffic: Traffic, law: CachedLengths) -> Traffic:
    only = replace(traffic.workload.classes[0], lengths=law)
    return replace(traffic, workload=replace(traffic.workload, classes=(only,)))


def _hits(traffic: Traffic, cache: PrefixCache, without: TilePlan, kv_tokens: float, router: str) -> _Hits:
    nodes = without.capacity.limits.nodes
    size = {"kv": float(kv_tokens), "tokens": cache.amount}.get(cache.kind)
    if cache.kind == "share":
        return _ShareHits(traffic, None, nodes, router, cache.amount)
    if len(traffic.workload.classes) > 1 or traffic.prefixes is None:
        raise InputError(
            f"prefix cache is {cache.label!r}, but {traffic.label} does not tell which prompts share a prefix; give a "
            "trace with block identities (Mooncake, Bailian), conversations, or the share that is found, as 40%"
        )
    from tileq_theory.prefix_cache import Conversations

    if isinstance(traffic.prefixes, Conversations):
        return _ConversationHits(traffic, size, nodes, router, traffic.prefixes)
    return _TraceHits(traffic, size, nodes, router, cache.kind == "kv")


@dataclass(frozen=True, slots=True, eq=False)
class _Hits:
    traffic: Traffic
    cache_tokens: float | None
    nodes: int
    router: str

    @property
    def together(self) -> bool:
        return self.router in TOGETHER

    def law(self, residents: float, rate_per_s: float) -> tuple[CachedLengths, float]:
        """Return the law with hits, and how many requests back the cache remembers."""
        raise NotImplementedError

    def warnings(self, nodes: int) -> list[str]:
        """Return what was assumed."""
        if nodes == 1:
            return []
        if self.together:
            return [f"router {self.router} keeps a conversation on one of {nodes} replicas; each holds system prompts"]
        return [
            f"router {self.router} splits conversations over {nodes} replicas, each of which finds only what came to it"
        ]


@dataclass(frozen=True, slots=True, eq=False)
class _ShareHits(_Hits):
    share: float

    def law(self, residents: float, rate_per_s: float) -> tuple[CachedLengths, float]:
        from tileq_theory.prefix_cache import share_cached

        return share_cached(self.traffic.workload.lengths, self.share), math.nan

    def warnings(self, nodes: int) -> list[str]:
        return ["the share of hits was given; no memory was counted for the cache beside the residents"]


@dataclass(frozen=True, slots=True, eq=False)
class _TraceHits(_Hits):
    with_answers: bool

    def law(self, residents: float, rate_per_s: float) -> tuple[CachedLengths, float]:
        base, share = self.traffic.workload.lengths, 1 / self.nodes
        return trace_law(
            base, self.traffic.prefixes, share, self.together, self.cache_tokens, residents, self.with_answers
        )

    def warnings(self, nodes: int) -> list[str]:
        told = "the trace names blocks of prompts only: an answer counts as new when it first comes back in a prompt"
        if self.together and nodes > 1:
            one = f"the caches of {nodes} replicas serve as one: prompts with a common prefix go to the same replica"
            return [one, told]
        return [*_Hits.warnings(self, nodes), told]


@dataclass(frozen=True, slots=True, eq=False)
class _ConversationHits(_Hits):
    talks: Conversations

    def law(self, residents: float, rate_per_s: float) -> tuple[CachedLengths, float]:
        base, share = self.traffic.workload.lengths, 1 / self.nodes
        law, reach = conversation_law(
            base, self.talks, share, self.together, self.cache_tokens, residents, rate_per_s * share
        )
        return law, reach * rate_per_s

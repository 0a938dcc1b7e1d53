"""What a request asks of the scheduler: its tier, its own TBT limit, what is known of its length.

Keys of vLLM's ``SamplingParams(extra_args={...})``; over HTTP, of ``"vllm_xargs"`` in the body of a completion:

    tileq_tier                     name of a tier of the settings
    tileq_tbt_limit_s              longest gap between two tokens, seconds; overrides the tier's
    tileq_predicted_output_tokens  what the client knows of the answer's length
    tileq_tenant                   number of the tenant, for a policy with a tenant quota
"""

from __future__ import annotations

__all__ = ["Asked", "asked_of"]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tileq_engine.vllm.settings import MOST_S, VllmSettings
from tileq_theory.errors import InputError, near_matches, nonnegative_int, positive, positive_int

_LEAST_S = 1e-12  # the rules count picoseconds, and 0 is no limit
_MOST_TOKENS = 1 << 30  # it has to fit into the rules' tables: no client's number may stop a server
_LONGEST_NAME = 200  # characters; looking for near matches of a client's megabytes would hold the engine up
KEYS = ("tileq_tier", "tileq_tbt_limit_s", "tileq_predicted_output_tokens", "tileq_tenant")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's wishes, with the tier's where it has none of its own."""

    tbt_limit_s: float
    paying: bool
    predicted_output_tokens: int | None = None
    tenant: int = 0
    tier: str = ""


def asked_of(extra: Mapping[str, Any] | None, settings: VllmSettings) -> Asked:
    """Return what `extra` (a request's extra_args) asks; raise `InputError` where it cannot be read.

    Examples
    --------
    >>> asked_of({"tileq_tier": "paying"}, VllmSettings()).tbt_limit_s
    0.1
    """
    if not extra:
        tier = settings.tier(None)
        return Asked(tier.tbt_limit_s, tier.paying, tier=settings.default_tier)
    for key in extra:
        if str(key).startswith("tileq_") and key not in KEYS:
            told = str(key)[:_LONGEST_NAME]
            raise InputError(f"{told!r} is unknown; {near_matches('keys', told, KEYS)}")
    name = extra.get("tileq_tier")
    if name is not None and not isinstance(name, str):
        raise InputError(f"tileq_tier is {name!r}; expected the name of a tier")
    if name is not None and len(name) > _LONGEST_NAME and name not in settings.tiers:
        raise InputError(f"tileq_tier has {len(name)} characters; expected the name of a tier")
    tier = settings.tier(name)
    own = extra.get("tileq_tbt_limit_s")
    predicted = extra.get("tileq_predicted_output_tokens")
    if own is not None and positive("tileq_tbt_limit_s", own) > MOST_S:
        raise InputError(f"tileq_tbt_limit_s is {own!r}; expected {MOST_S:g} s or less")
    if predicted is not None and positive_int("tileq_predicted_output_tokens", predicted) > _MOST_TOKENS:
        raise InputError(f"tileq_predicted_output_tokens is {predicted!r}; expected {_MOST_TOKENS} or less")
    return Asked(
        tbt_limit_s=max(tier.tbt_limit_s if own is None else float(own), _LEAST_S),
        paying=tier.paying,
        predicted_output_tokens=None if predicted is None else int(predicted),
        tenant=nonnegative_int("tileq_tenant", extra.get("tileq_tenant", 0)),
        tier=name or settings.default_tier,
    )

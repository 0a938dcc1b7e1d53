"""Legal batches: what may be in one iteration at all."""

from __future__ import annotations

__all__ = ["legal_batches"]

from tileq_engine.laws.base import Breach, Member, Replay

RULE = "legal batch"


def legal_batches(r: Replay) -> Breach | None:
    """Return the first member that should not be in its batch.

    A request is in a batch at most once, only after it arrived and before it ended, never when it was rejected, and
    either with prefill tokens or with one decode; a batch is not empty.
    """
    run = r.run
    for i, (start, batch) in enumerate(zip(r.start_ps, r.members, strict=True)):
        if not batch:
            return Breach(RULE, "the policy", i, "the batch is empty")
        seen: set[int] = set()
        for m in batch:
            reason = _member(m) or ("it is in the batch twice" if m.request in seen else None)
            if reason is None and run.arrival_ps[m.request] > start:
                reason = f"it runs at {start} ps, before it arrives at {int(run.arrival_ps[m.request])} ps"
            finish = int(run.finish_ps[m.request])
            if reason is None and 0 <= finish <= start:
                reason = f"it runs at {start} ps, after it ended at {finish} ps"
            if reason is None and run.reject_reason[m.request]:
                reason = "it runs although it was rejected"
            if reason:
                return Breach(RULE, r.name_of(m.request), i, reason)
            seen.add(m.request)
    return None


def _member(m: Member) -> str | None:
    if m.decode not in (0, 1):
        return f"{m.decode} decode tokens; expected 0 or 1"
    if m.decode and m.prefill_tokens:
        return f"it decodes and prefills {m.prefill_tokens} tokens in one iteration"
    if not m.decode and m.prefill_tokens < 1:
        return f"{m.prefill_tokens} prefill tokens and no decode; expected at least one token"
    return None

"""Capacity: sequences of a batch, cache blocks and, where the policy promises it, the token budget."""

from __future__ import annotations

__all__ = ["budget_kept", "capacity_kept"]

from tileq_engine.laws.base import Breach, Replay


def capacity_kept(r: Replay) -> Breach | None:
    """Return the first iteration with more sequences than slots, or more blocks used than there are."""
    run = r.run
    slots = _setting(r, "max_num_seqs")
    for i, batch in enumerate(r.members):
        if len(batch) > slots:
            return Breach("slots", "the batch", i, f"{len(batch)} sequences in a batch of at most {slots}")
    if run.config.kv_tokens is not None:
        blocks = int(run.config.kv_tokens) // int(run.config.block_tokens)
        peak = int(run.counters["peak_kv_blocks"])
        if peak > blocks:
            return Breach("cache blocks", "the cache", -1, f"{peak} blocks used of {blocks}")
    return None


def budget_kept(r: Replay) -> Breach | None:
    """Return the first batch whose prefill tokens exceed what the decodes leave of the token budget.

    Decodes alone may exceed it (Sarathi-Serve does not cap them); prefill beside them never does. One exception: a
    whole prompt that restarts with its generated tokens may run alone, for it can never be shorter.
    """
    budget = _setting(r, "token_budget")
    for i, batch in enumerate(r.members):
        decodes = sum(m.decode for m in batch)
        prefill = sum(m.prefill_tokens for m in batch)
        restart = len(batch) == 1 and r.run.preemptions[batch[0].request] > 0
        if prefill and decodes + prefill > budget and not restart:
            reason = f"{prefill} prefill tokens beside {decodes} decodes exceed the budget of {budget}"
            return Breach("token budget", "the batch", i, reason)
    return None


def _setting(r: Replay, name: str) -> int:
    """The policy's own value where it has one, else the configuration's."""
    own = getattr(r.run.policy, name, None)
    return int(getattr(r.run.config, name) if own is None else own)

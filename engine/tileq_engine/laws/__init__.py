"""Laws that every run must keep, one file per law; each is a function of a traced run that returns its first breach."""

from __future__ import annotations

from tileq_engine.laws.base import Breach, Law, Replay, replay
from tileq_engine.laws.batches import legal_batches
from tileq_engine.laws.capacity import capacity_kept
from tileq_engine.laws.clock import clock_runs_forward, every_request_ends, never_idle_with_work
from tileq_engine.laws.conservation import tokens_conserved

__all__ = [
    "Breach",
    "Law",
    "Replay",
    "capacity_kept",
    "clock_runs_forward",
    "every_request_ends",
    "legal_batches",
    "never_idle_with_work",
    "replay",
    "tokens_conserved",
]

"""Behaviour beyond capacity: the questions of `tileq analyze`, each a function whose `to_dict()` is the document."""

from __future__ import annotations

from tileq.analysis.answer import Analysis
from tileq.analysis.certificates import certificate
from tileq.analysis.chains import chain
from tileq.analysis.fluids import fluid
from tileq.analysis.latencies import latency
from tileq.analysis.modes import modes
from tileq.analysis.networks import network
from tileq.analysis.sizes import sizing
from tileq.analysis.splits import disaggregate

__all__ = ["Analysis", "certificate", "chain", "disaggregate", "fluid", "latency", "modes", "network", "sizing"]

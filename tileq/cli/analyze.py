"""`tileq analyze`: behaviour beyond capacity, one command a question."""

from __future__ import annotations

__all__ = ["analyze"]

from cyclopts import App

from tileq.cli import analyze_modes, analyze_node, analyze_queue

analyze = App(
    name="analyze",
    help="Exact chain, fluid limit, certificates, latency, sizing, networks, disaggregation.",
    help_format="plaintext",
    help_epilogue="Example: tileq analyze latency srpt --rate 0.7",
)
for command, epilogue in (*analyze_node.COMMANDS, *analyze_modes.COMMANDS, *analyze_queue.COMMANDS):
    analyze.command(command, help_epilogue=epilogue)

"""A calibration, told: a table for the terminal and an HTML page with its plots."""

from tileq_profiling.report.html import html_report, latency_report
from tileq_profiling.report.text import text_report

__all__ = ["html_report", "latency_report", "text_report"]

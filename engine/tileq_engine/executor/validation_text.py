"""A validation in words and tables: Markdown, for a terminal and for documents."""

from __future__ import annotations

__all__ = ["validation_markdown"]

from collections.abc import Mapping, Sequence
from typing import Any


def validation_markdown(document: Mapping[str, Any]) -> str:
    """Return a validation's document as Markdown."""
    s = document["summary"]
    parts = [
        f"# {document['title']}",
        _facts(document["conditions"]),
        "## The edge of stability",
        _edge_words(s),
        _table(
            ("policy", "measured edge", "simulated", "lambda* over measured", "simulated over measured", "uncorrected"),
            [
                (
                    name,
                    _rate(e["measured_per_s"], e["halfwidth_per_s"]),
                    _rate(e["simulated_per_s"]),
                    _percent(e["rate_over_measured"]),
                    _percent(e["simulated_over_measured"]),
                    _percent(e["raw_rate_over_raw"]),
                )
                for name, e in s["edges"].items()
            ],
        ),
        "## Loads around it",
        "Load is the offered rate over the policy's measured edge. Percentages are simulated over measured, less 1.",
        _table(
            (
                "policy",
                "fraction",
                "load",
                "expected",
                "verdict",
                "simulated",
                "TTFT p50",
                "",
                "TTFT p99",
                "",
                "TBT p50",
                "",
                "TBT p99",
                "",
            ),
            [_load_row(row) for row in sorted(s["loads"], key=lambda r: (r["policy"], r["fraction"]))],
        ),
        "## Order of the policies",
        _table(
            ("fraction of lambda*", "figure", "measured, ascending", "simulated, ascending", "pairs in order"),
            [
                (
                    "saturated" if o["fraction"] is None else f"{o['fraction']:g}",
                    o["figure"],
                    ", ".join(o["measured"]),
                    ", ".join(o["simulated"]),
                    f"{o['pairs_in_order']} of {o['pairs_apart']}",
                )
                for o in s["order"]
            ],
        ),
        "A pair counts where the simulator tells the two policies apart by more than 5 %.",
        "## Iterations",
        _iteration_words(document),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(conditions: Mapping[str, Any]) -> str:
    return "\n".join(f"* {name}: {_plainly(value)}" for name, value in conditions.items())


def _plainly(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_plainly(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plainly(v) for v in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _edge_words(s: Mapping[str, Any]) -> str:
    words = [f"lambda* from the executor's own profile: {s['rate_per_s']:.4g} requests/s."]
    if s["rate_over_best_edge"] is not None:
        words.append(f"It is {_percent(s['rate_over_best_edge'])} of the largest measured edge.")
    if s["after_rate_per_s"]:
        off = s["after_rate_per_s"] / s["rate_per_s"] - 1
        words.append(f"The profile taken after the runs says {s['after_rate_per_s']:.4g}/s ({_percent(off)}).")
    if s["raw_rate_per_s"]:
        words.append(f"Without the correction for the machine's drift: {s['raw_rate_per_s']:.4g}/s.")
    return " ".join(words)


def _load_row(row: Mapping[str, Any]) -> Sequence[str]:
    cells = [
        row["policy"],
        f"{row['fraction']:g}",
        "-" if row["load"] is None else f"{row['load']:.3f}",
        row["expected"] or "-",
        row["verdict"],
        row["simulated_verdict"],
    ]
    for figure in ("ttft_p50", "ttft_p99", "tbt_p50", "tbt_p99"):
        cells += [_seconds(row[f"{figure}_s"]), _percent(row[f"{figure}_simulated_over_measured"])]
    return cells


def _iteration_words(document: Mapping[str, Any]) -> str:
    s = document["summary"]
    e = s["iteration_error"]
    words = [
        f"Predicted against measured iteration times in the runs: median error {_percent(e['median'], False)}, 90 % "
        f"within {_percent(e['p90'], False)}, bias of the whole {_percent(e['bias'], False)} (medians over the runs).",
        f"Outside the forward: {_percent(s['overhead_share'], False)} of an iteration; a decision takes "
        f"{s['decide_median_us']:.0f} us (median).",
        "Fed with the measured iteration times, the simulator "
        + ("reproduces every run's timeline to the picosecond." if s["replays_same"] else "DIFFERS from some run."),
    ]
    return " ".join(words)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "(nothing was run)"
    lines = ["| " + " | ".join(row) + " |" for row in (names, ["---"] * len(names), *rows)]
    return "\n".join(lines)


def _rate(value: float | None, halfwidth: float | None = None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}/s" + (f" ± {halfwidth:.2g}" if halfwidth is not None else "")


def _percent(value: float | None, signed: bool = True) -> str:
    if value is None:
        return "-"
    return f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"

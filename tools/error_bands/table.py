"""From points to bands and efficiencies, and to the TOML that the library ships."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from points import REGIMES, Point, ratios, regimes
from sources import Ratios, everything

from tileq_theory.hardware.bands import Efficiency, variant_name

COVERAGE = 0.9
_TAILS = ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2)


def weighted_quantiles(values: Sequence[float], weights: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return the smallest values whose weight below and at them reaches each share."""
    order = np.argsort(values)
    cumulative = np.cumsum(np.asarray(weights)[order])
    index = np.searchsorted(cumulative / cumulative[-1], np.asarray(shares) - 1e-12)
    return [float(np.asarray(values)[order][i]) for i in index]


def even_weights(labels: Sequence[Sequence[str]]) -> list[float]:
    """Return weights under which the labels of the first list, then those of the next within each, weigh the same."""
    weights = np.ones(len(labels[0]))

    def spread(members: list[int], level: int, weight: float) -> None:
        if level == len(labels):
            weights[members] = weight / len(members)
            return
        parts: dict[str, list[int]] = defaultdict(list)
        for i in members:
            parts[labels[level][i]].append(i)
        for part in parts.values():
            spread(part, level + 1, weight / len(parts))

    spread(list(range(len(weights))), 0, 1.0)
    return weights.tolist()


def efficiencies(measured_parts: dict[str, list[Ratios]]) -> dict[str, dict[str, Any]]:
    """Return each GPU's median ratio of each part (mean over sources); a part not measured takes the others' mean."""
    measured: dict[str, dict[str, float]] = {
        gpu: {
            part: float(np.mean([np.median(source[part]) for source in sources if source.get(part)]))
            for part in REGIMES
            if any(source.get(part) for source in sources)
        }
        for gpu, sources in measured_parts.items()
    }
    logs = {part: [np.log(row[part]) for row in measured.values() if part in row] for part in REGIMES}
    pooled = {part: float(np.exp(np.mean(values))) for part, values in logs.items()}
    table: dict[str, dict[str, Any]] = {}
    for gpu, row in sorted(measured.items()):
        lacking = [part for part in REGIMES if part not in row]
        basis = "medians of what was timed on this GPU"
        if lacking:
            basis += f"; {', '.join(lacking)} pooled from other GPUs"
        table[gpu] = {**{part: round(row.get(part, pooled[part]), 3) for part in REGIMES}, "basis": basis}
    basis = f"geometric mean over {', '.join(sorted(measured))}"
    table["pooled"] = {**{part: round(pooled[part], 3) for part in REGIMES}, "basis": basis}
    return table


def band_row(points: list[Point], factors: dict[str, Efficiency], pooled: bool) -> dict[str, Any]:
    """Return the quantiles of measured / modelled for each variant, and of each regime for the tiled datasheet one."""
    parts = regimes(points)
    labels = [[p.source for p in points], parts]
    weights = even_weights([[p.gpu for p in points], *labels] if pooled else labels)
    row: dict[str, Any] = {}
    for affine in (False, True):
        for correct in (False, True):
            values = ratios(points, affine, factors if correct else None).tolist()
            row[variant_name(affine=affine, corrected=correct)] = _rounded(weighted_quantiles(values, weights, _TAILS))
            if not affine:
                key = "corrected_median" if correct else "median"
                row[key] = _rounded(weighted_quantiles(values, weights, [0.5]))[0]
    row["points"] = len(points)
    row["basis"] = f"{len(points)} iterations in 16-bit formats: " + "; ".join(sorted({p.source for p in points}))
    row["regimes"] = _regime_rows(points, parts)
    return row


def _regime_rows(points: list[Point], parts: list[str]) -> dict[str, dict[str, float]]:
    out: dict[str, dict[str, float]] = {}
    for regime in REGIMES:
        mine = [p for p, part in zip(points, parts, strict=True) if part == regime]
        if mine:
            weights = even_weights([[p.source for p in mine]])
            shares = [_TAILS[0], 0.5, _TAILS[1]]
            low, middle, high = _rounded(weighted_quantiles(ratios(mine, affine=False).tolist(), weights, shares))
            out[regime] = {"points": len(mine), "low": low, "median": middle, "high": high}
    return out


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in values]


def build(data: Path) -> dict[str, Any]:
    """Return the whole table."""
    points, parts = everything(data)
    table = efficiencies(parts)
    factors = {gpu: Efficiency(**row) for gpu, row in table.items()}
    bands: dict[str, dict[str, Any]] = {}
    for group, mine in (("single", [p for p in points if p.tp == 1]), ("parallel", [p for p in points if p.tp > 1])):
        by_gpu: dict[str, list[Point]] = defaultdict(list)
        for p in mine:
            by_gpu[p.gpu].append(p)
        bands[group] = {gpu: band_row(by_gpu[gpu], factors, pooled=False) for gpu in sorted(by_gpu)}
        bands[group]["pooled"] = band_row(mine, factors, pooled=True)
    return {"coverage": COVERAGE, "efficiency": table, "bands": bands}


HEADER = """\
# How far measured iterations lie from datasheet rooflines: measured time / modelled time, 5 % and 95 % quantiles.
#
# Written by tools/error_bands from published measurements (Vidur, aiconfigurator, LLMServingSim, splitwise-sim,
# Sarathi-Serve, SLAI, llm_execution_time_predictor); only these figures ship. single: one GPU; parallel: several.
# tiled: tile of 128 tokens, the default; affine: no tile; _corrected: each part multiplied by its efficiency below.
# Sources weigh the same within a GPU, regimes within a source; a regime is the part of the roofline that takes longest.
"""


def to_toml(table: dict[str, Any]) -> str:
    """Return the table as TOML, one line a fact."""
    lines = [HEADER, f"coverage = {table['coverage']}"]
    for gpu, row in table["efficiency"].items():
        lines += ["", f"[efficiency.{gpu}]", *(f"{k} = {_value(v)}" for k, v in row.items())]
    for group, rows in table["bands"].items():
        for gpu, row in rows.items():
            lines += ["", f"[bands.{group}.{gpu}]", *(f"{k} = {_value(v)}" for k, v in row.items() if k != "regimes")]
            lines += [f"regimes.{name} = {_value(regime)}" for name, regime in row["regimes"].items()]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + " }"
    return str(value)

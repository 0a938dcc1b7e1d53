"""A validation as one HTML page: the tables, and what they show as pictures."""

from __future__ import annotations

__all__ = ["validation_page", "vllm_page"]

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem; text-align: left; white-space: nowrap; }
figure { margin: 1.5rem 0; } figcaption { color: #555; }
.stable { color: #1a7f37; } .unstable { color: #b42318; } .undecided { color: #7a7a7a; }
"""
_INK = ("#3b6ea8", "#c2662d", "#3f8f5b", "#8a4fa3", "#777777")
_WIDTH, _HEIGHT, _LEFT, _FOOT = 640, 260, 60, 40


def validation_page(document: Mapping[str, Any]) -> str:
    """Return the page of a validation's document; it needs nothing but a browser."""
    from tileq_engine.executor.validation_text import validation_markdown

    body = _html(validation_markdown(document))
    figures = [
        (_edges(document["summary"]), "Measured edge of each policy with its 95 % interval; the line is lambda*."),
        (
            _loads(document["summary"], "ttft_mean"),
            "Mean TTFT against the offered rate over lambda*: measured (dots) and simulated (lines).",
        ),
        (
            _loads(document["summary"], "tbt_mean"),
            "Mean time between tokens against the offered rate over lambda*: measured (dots), simulated (lines).",
        ),
    ]
    return _page(str(document["title"]), body, figures)


def vllm_page(document: Mapping[str, Any]) -> str:
    """Return the page of a validation of vLLM: its offline engine, and its server."""
    from tileq.validation_vllm_text import page_summary, vllm_markdown

    body = _html(vllm_markdown(document))
    figures = []
    for where, what in ((None, "The offline engine"), ("server", "The server, as its client saw it")):
        summary = page_summary(document, where)
        if summary is None:
            continue
        figures += [
            (_edges(summary), f"{what}: measured edge of each policy; the line is lambda*."),
            (
                _loads(summary, "ttft_p50"),
                f"{what}: median TTFT at shares of lambda*: measured (dots), simulated (lines).",
            ),
            (_loads(summary, "tbt_mean"), f"{what}: mean time between tokens: measured (dots), simulated (lines)."),
        ]
    return _page(str(document["title"]), body, figures)


def _page(title: str, body: str, figures: Sequence[tuple[str, str]]) -> str:
    drawn = "".join(f"<figure>{svg}<figcaption>{escape(words)}</figcaption></figure>" for svg, words in figures if svg)
    title = escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n{drawn}\n</body></html>\n"
    )


def _html(markdown: str) -> str:
    """Return our own Markdown (headings, lists, tables, paragraphs) as HTML."""
    out = []
    for block in markdown.strip().split("\n\n"):
        lines = block.splitlines()
        if block.startswith("#"):
            level = len(block) - len(block.lstrip("#"))
            out.append(f"<h{level}>{escape(block[level:].strip())}</h{level}>")
        elif block.startswith("|"):
            out.append(_rows([[cell.strip() for cell in line.strip("|").split("|")] for line in lines]))
        elif block.startswith("* "):
            out.append("<ul>" + "".join(f"<li>{escape(line[2:])}</li>" for line in lines) + "</ul>")
        else:
            out.append(f"<p>{escape(' '.join(lines))}</p>")
    return "\n".join(out)


def _rows(rows: Sequence[Sequence[str]]) -> str:
    head, _, *body = rows
    cells = "".join(f"<th>{escape(c)}</th>" for c in head)
    kinds = ("stable", "unstable", "undecided")
    lines = (
        "<tr>" + "".join(f'<td class="{c}">{c}</td>' if c in kinds else f"<td>{escape(c)}</td>" for c in row) + "</tr>"
        for row in body
    )
    return f"<table><tr>{cells}</tr>{''.join(lines)}</table>"


def _edges(summary: Mapping[str, Any]) -> str:
    known = {n: e for n, e in summary["edges"].items() if e["measured_per_s"]}
    if not known:
        return ""
    rate = summary["rate_per_s"]
    top = 1.15 * max(rate, *(e["measured_per_s"] for e in known.values()))
    step = (_WIDTH - _LEFT) / len(known)
    parts = [_axis(top, "requests/s")]
    for k, (name, e) in enumerate(known.items()):
        x, y = _LEFT + (k + 0.5) * step, _y(e["measured_per_s"], top)
        half = e["halfwidth_per_s"] or 0.0
        parts.append(
            f'<rect x="{x - 30:.1f}" y="{y:.1f}" width="60" height="{_HEIGHT - y:.1f}" fill="{_INK[k % 5]}"/>'
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_y(e["measured_per_s"] - half, top):.1f}" '
            f'y2="{_y(e["measured_per_s"] + half, top):.1f}" stroke="#222" stroke-width="2"/>'
            f'<text x="{x:.1f}" y="{_HEIGHT + 18}" text-anchor="middle">{escape(name)}</text>'
        )
    y = _y(rate, top)
    parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#222" stroke-dasharray="5 4"/>')
    return _svg(parts)


def _loads(summary: Mapping[str, Any], figure: str) -> str:
    rows = [r for r in summary["loads"] if r[f"{figure}_s"]]
    if not rows:
        return ""
    names = list(dict.fromkeys(r["policy"] for r in rows))
    top = 1.1 * max(max(r[f"{figure}_s"], _simulated(r, figure)) for r in rows)
    low, high = min(r["fraction"] for r in rows), max(r["fraction"] for r in rows)
    span = max(high - low, 1e-9)
    parts = [_axis(top, "s")]
    for fraction in sorted({r["fraction"] for r in rows}):
        x = _x(fraction, low, span)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT + 18}" text-anchor="middle">{fraction:g}</text>')
    for k, name in enumerate(names):
        own = sorted((r for r in rows if r["policy"] == name), key=lambda r: r["fraction"])
        line = " ".join(f"{_x(r['fraction'], low, span):.1f},{_y(_simulated(r, figure), top):.1f}" for r in own)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{_INK[k % 5]}" stroke-width="1.5"/>')
        parts += [
            f'<circle cx="{_x(r["fraction"], low, span):.1f}" cy="{_y(r[f"{figure}_s"], top):.1f}" r="4" '
            f'fill="{_INK[k % 5]}"/>'
            for r in own
        ]
        parts.append(f'<text x="{_LEFT + 12}" y="{20 + 18 * k}" fill="{_INK[k % 5]}">{escape(name)}</text>')
    return _svg(parts)


def _simulated(row: Mapping[str, Any], figure: str) -> float:
    off = row[f"{figure}_simulated_over_measured"] or 0.0
    return float(row[f"{figure}_s"] * (1 + off))


def _x(fraction: float, low: float, span: float) -> float:
    return _LEFT + 30 + (fraction - low) / span * (_WIDTH - _LEFT - 60)


def _y(value: float, top: float) -> float:
    return _HEIGHT - value / top * (_HEIGHT - 10)


def _axis(top: float, unit: str) -> str:
    marks = "".join(
        f'<text x="{_LEFT - 6}" y="{_y(top * k / 4, top) + 4:.1f}" text-anchor="end">{top * k / 4:.3g}</text>'
        for k in range(5)
    )
    frame = f'<path d="M{_LEFT} 10V{_HEIGHT}H{_WIDTH}" fill="none" stroke="#999"/>'
    return f'{frame}{marks}<text x="4" y="10">{unit}</text>'


def _svg(parts: Sequence[str]) -> str:
    size = f"0 0 {_WIDTH + 10} {_HEIGHT + _FOOT}"
    return (
        f'<svg viewBox="{size}" width="{_WIDTH}" font-family="sans-serif" font-size="12" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )

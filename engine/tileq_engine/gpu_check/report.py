"""The readable report of a check."""

from __future__ import annotations

__all__ = ["report_text"]

from collections.abc import Mapping
from typing import Any


def report_text(document: Mapping[str, Any]) -> str:
    """Return the report as Markdown."""
    c = document["conditions"]
    parts = [
        f"# {c['model']} on {c['device']}",
        "\n".join(f"* {name}: {_plain(value)}" for name, value in c.items()),
        _verdict(document),
    ]
    for name, part in document["parts"].items():
        parts.append(f"## {name[0].upper()}{name[1:]}")
        parts.append(_words(name, part))
    return "\n\n".join(parts) + "\n"


def _verdict(document: Mapping[str, Any]) -> str:
    if not document.get("complete", True):
        return f"CUT SHORT after {document['took_s']:.0f} s: what follows is what was done by then."
    return f"Everything {'is' if document['right'] else 'is NOT'} right; it took {document['took_s']:.0f} s."


def _words(name: str, part: Mapping[str, Any]) -> str:
    if "error" in part:
        return f"FAILED: {part['error']}"
    if "skipped" in part:
        return f"Skipped: {part['skipped']}"
    return _WORDS.get(name.split(",")[0], _plain)(part)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(v) for v in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _logits(part: Mapping[str, Any]) -> str:
    words = (
        f"{_mark(part)} Largest difference from one whole prefill {part['max_abs_error']:.3g} (limit "
        f"{part['limit']:g}), attention {part['attention']}."
    )
    peer = part.get("transformers")
    if not peer:
        return words
    if "skipped" in peer:
        return f"{words} Not compared with transformers: {peer['skipped']}"
    return f"{words} From transformers {peer['version']}: {peer['max_abs_error']:.3g}."


def _tokens(part: Mapping[str, Any]) -> str:
    return (
        f"{_mark(part)} {part['requests_compared']} requests under other schedules, {part['preemptions']} preemptions: "
        f"{part['different']} with other tokens. Replays "
        + ("are the same to the picosecond." if part["replays_same"] else "DIFFER.")
    )


def _roofline(part: Mapping[str, Any]) -> str:
    peaks = part["peaks"]
    lines = [
        f"The device itself: a large copy moves {peaks['copy_bytes_per_s'] / 1e9:.0f} GB/s, a large product does "
        f"{peaks['matmul_flops_per_s'] / 1e12:.3g} TFLOP/s.",
        "",
        "| iteration | time | per second | share of the device's own |",
        "| --- | --- | --- | --- |",
    ]
    for row in part["shares"].values():
        decode = "sequences" in row
        what = (
            f"{row['sequences']} decodes, {row['kv_tokens']} KV tokens" if decode else f"{row['tokens']} prefill tokens"
        )
        speed = f"{row['bytes_per_s'] / 1e9:.0f} GB" if decode else f"{row['flops_per_s'] / 1e12:.3g} TFLOP"
        share = row["bandwidth_share"] if decode else row["matmul_share"]
        lines.append(f"| {what} | {1e3 * row['seconds']:.3g} ms | {speed} | {100 * share:.0f} % |")
    return "\n".join(lines)


def _profile(part: Mapping[str, Any]) -> str:
    fit = {k: v for k, v in part["fit"].items() if isinstance(v, float) and v}
    return (
        f"{len(part['points'])} batches through the executor; held-out median error "
        f"{100 * part['held_out_median_error']:.1f} %. The loop around a batch costs "
        f"{1e6 * part['loop_overhead_s']:.0f} us. Fit: {_plain(fit)}."
    )


def _validation(part: Mapping[str, Any]) -> str:
    from tileq_engine.executor.validation_text import validation_markdown

    plan = part["plan"]
    tile = f"{plan['prefill_tokens']} prefill and {plan['decode_tokens']} decode tokens"
    given = {
        "plan": f"token budget {plan['tokens']}: {tile}",
        "clock": part["clock"],
        "complete": part["complete"],
    }
    text = validation_markdown({"title": "", "conditions": given, "summary": part["summary"]})
    return text.removeprefix("# \n\n").replace("\n## ", "\n### ").strip()


def _peer(part: Mapping[str, Any]) -> str:
    theirs = part["transformers"]
    return (
        f"{part['output_tokens_per_s']:.4g} output tokens/s here; {theirs['tokens_per_s']:.4g} by transformers "
        f"{theirs['version']} generate in static batches of {theirs['batch']}: {part['ratio']:.2f} times as many."
    )


def _mark(part: Mapping[str, Any]) -> str:
    return "Right." if part["right"] else "WRONG."


_WORDS = {
    "logits": _logits,
    "tokens": _tokens,
    "roofline": _roofline,
    "profile": _profile,
    "validation": _validation,
    "transformers": _peer,
}

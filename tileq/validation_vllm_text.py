"""A validation of vLLM in words and tables: Markdown, for a terminal and for documents."""

from __future__ import annotations

__all__ = ["page_summary", "vllm_markdown"]

from collections.abc import Mapping, Sequence
from typing import Any

from tileq_engine.executor.validation_text import _facts, _percent, _rate, _seconds, _table

_FIGURES = ("ttft_p50_s", "ttft_p99_s", "tbt_mean_s", "tbt_p99_s")
_NAMES = ("TTFT p50", "TTFT p99", "TBT mean", "TBT p99")


def vllm_markdown(document: Mapping[str, Any]) -> str:
    """Return the document of a validation of vLLM as Markdown."""
    s = document["summary"]
    parts = [
        f"# {document['title']}",
        _facts(document["conditions"]),
        "## The offline engine",
        f"lambda* from its own profile of {document['fit']['points']} iterations: {_rate(s['rate_per_s'])}; "
        f"{over_words(document)}. Token budget {document['plan']['token_budget']}.",
        _edges(document["cases"]),
        _loads(document["cases"], ("measured", "simulated")),
        *_server(document["server"]),
        "## Replay",
        replay_words(document),
    ]
    return "\n\n".join(parts) + "\n"


def replay_words(document: Mapping[str, Any]) -> str:
    """Return what the replays say."""
    s = document["summary"]
    words = "Fed with the measured iteration times, the simulator takes the same decisions in all of "
    offline = max((r["tokens_us"] for case in document["cases"] for r in _replays(case)), default=0.0)
    if not s["replays_same"]:
        lines = [line for case in _all_cases(document) for r in _replays(case) for line in r["differences"]]
        return f"Fed with the measured iteration times, the simulator DIFFERS: {'; '.join(lines[:3])}."
    words += f"{s['iterations_replayed']} iterations"
    return f"{words}; its tokens come within {offline:.3g} us of the offline engine's."


def _replays(case: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    own = [case["replay"]] if "replay" in case else case["replays"]
    return [*own, *(load["replay"] for load in case["loads"] if "replay" in load)]


def _all_cases(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*document["cases"], *(document["server"] or {"cases": []})["cases"]]


def _server(server: Mapping[str, Any] | None) -> list[str]:
    if server is None:
        return []
    return [
        "## The server on the loopback",
        f"An OpenAI-compatible server in real time, driven by {server['client']}. lambda* from what its scheduler "
        f"recorded: {_rate(server['rate_per_s'])}; {over_words(server)}. The client's figures have the API in them, "
        "the scheduler's do not.",
        _edges(server["cases"]),
        _loads(server["cases"], ("measured", "scheduler", "simulated")),
        _throughputs(server["cases"]),
    ]


def over_words(part: Mapping[str, Any]) -> str:
    """Return where lambda* lies over the first policy's measured edge, with its interval."""
    over = part.get("summary", part)["rate_over_edge"]
    if over is None:
        return "no edge was measured"
    words = f"{_percent(over['estimate'])} over the edge of {part['cases'][0]['policy']}"
    if over["low"] is None:
        return words
    return f"{words} ({_percent(over['low'])} to {_percent(over['high'])}, {over['rounds']} rounds)"


def _edges(cases: Sequence[Mapping[str, Any]]) -> str:
    rows = [(c["policy"], _rate(c["edge_per_s"]), half_words(c), _rate(c["edge_simulated_per_s"])) for c in cases]
    return _table(("policy", "measured edge", "+-", "simulated"), rows)


def half_words(case: Mapping[str, Any]) -> str:
    """Return half the interval of a case's edge."""
    half = case["edge_halfwidth_per_s"]
    return "-" if half is None else f"{half:.2g}"


def _loads(cases: Sequence[Mapping[str, Any]], sides: Sequence[str]) -> str:
    rows = [
        (
            case["policy"],
            f"{load['fraction']:g}",
            "-" if load["load"] is None else f"{load['load']:.3f}",
            "client" if side == "measured" and len(sides) > 2 else side,
            *(_seconds(load[side][name]) for name in _FIGURES),
        )
        for case in cases
        for load in case["loads"]
        for side in sides
    ]
    return _table(("policy", "of lambda*", "load", "whose", *_NAMES), rows)


def _throughputs(cases: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            case["policy"],
            f"{load['fraction']:g}",
            _rate(load["rate_per_s"]),
            _rate(load["measured"]["throughput_per_s"]),
            _rate(load["simulated"]["throughput_per_s"]),
            f"{load['measured']['completed']}, {load['measured']['failed']} failed",
        )
        for case in cases
        for load in case["loads"]
    ]
    return _table(("policy", "of lambda*", "offered", "throughput", "simulated", "answered"), rows)


def _edge_pair(case: Mapping[str, Any]) -> dict[str, Any]:
    return {"measured_per_s": case["edge_per_s"], "halfwidth_per_s": case["edge_halfwidth_per_s"]}


def page_summary(document: Mapping[str, Any], where: str | None) -> dict[str, Any] | None:
    """Return what the page's pictures show of the offline engine (None) or the "server"; None without one."""
    part = document if where is None else document[where]
    if part is None:
        return None
    rate = document["summary"]["rate_per_s"] if where is None else part["rate_per_s"]
    edges = {case["policy"]: _edge_pair(case) for case in part["cases"]}
    loads = []
    for case in part["cases"]:
        for load in case["loads"]:
            row: dict[str, Any] = {"policy": case["policy"], "fraction": load["fraction"]}
            for name in _FIGURES:
                ours, theirs = load["measured"][name], load["simulated"][name]
                row[name] = ours
                row[f"{name[:-2]}_simulated_over_measured"] = theirs / ours - 1.0 if ours and theirs else None
            loads.append(row)
    return {"rate_per_s": rate, "edges": edges, "loads": loads}

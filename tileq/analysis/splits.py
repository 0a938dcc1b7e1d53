"""Disaggregated prefill and decode against mixing, on one workload."""

from __future__ import annotations

__all__ = ["disaggregate"]

from typing import Any

from tileq.analysis.answer import Analysis, analysis
from tileq.analysis.machine import machine, one_class
from tileq.words import number, seconds
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import positive, positive_int


def disaggregate(
    requests: str = "2048:256",
    *,
    nodes: int = 8,
    tbt: float | None = None,
    max_num_seqs: int | None = None,
    max_tokens: int = 8192,
    link_bytes_per_s: float = 50e9,
    kv_bytes_per_token: float | None = None,
    convention: TokenConvention = "engine",
    **of_machine: Any,
) -> Analysis:
    """Return the capacity of nodes that mix, take turns, or split into prefill and decode nodes.

    Parameters
    ----------
    requests
        "P:O".
    nodes, tbt, max_num_seqs, max_tokens
        Nodes in all, and limits, as in `plan`.
    link_bytes_per_s
        Bandwidth of a node to others.
    kv_bytes_per_token
        Bytes moved a prompt token; None: the model's (needed with `time`).
    of_machine
        As in `chain`.

    Examples
    --------
    >>> disaggregate("2048:128", nodes=4, tbt=0.05).to_dict()["winner"] in ("mixed", "aggregated", "disaggregated")
    True
    """
    from tileq_theory.capacity import Limits
    from tileq_theory.disaggregation import KvLink, compare_modes, plot_map, workload_map
    from tileq_theory.errors import InputError

    where = machine(**of_machine)
    traffic = one_class(requests, convention, max_tokens)
    moved = kv_bytes_per_token
    if moved is None:
        if where.setting is None:
            raise InputError("kv_bytes_per_token is not given; expected it beside time, which names no model")
        from tileq_theory.hardware.model import Model

        network: Model = where.setting.model
        moved = float(network.kv_bytes_per_token(where.setting.kv_dtype or "bf16"))
    link = KvLink(bytes_per_token=moved, node_bytes_per_s=positive("link_bytes_per_s", link_bytes_per_s))
    limits = Limits(
        max_batch_tokens=max_tokens,
        max_num_seqs=max_num_seqs,
        kv_tokens=None if where.setting is None else where.setting.kv_tokens,
        tbt_s=tbt,
        nodes=positive_int("nodes", nodes),
    )
    found = compare_modes(traffic.demand, where.time, limits, link=link)
    split = found.split
    rows = [
        ("mixed", f"{number(found.mixed_per_s)} requests/s: prefill and decode in one batch"),
        ("aggregated", f"{number(found.aggregated_per_s)} requests/s: every node takes turns"),
        ("disaggregated", "none: a split takes two nodes" if nodes < 2 else
         f"{number(found.disaggregated_per_s)} requests/s: {split.prefill_nodes} prefill and "
         f"{split.decode_nodes} decode nodes, {split.binding} binds"),
        ("split at will", f"{number(found.relaxed_per_s)} requests/s, were nodes divisible"),
        ("KV transfer", f"{seconds(split.transfer_s)} a request"),
    ]  # fmt: skip
    answer = {
        "winner": found.winner,
        "mixed_per_s": found.mixed_per_s,
        "aggregated_per_s": found.aggregated_per_s,
        "disaggregated_per_s": found.disaggregated_per_s,
        "relaxed_per_s": found.relaxed_per_s,
        "split": {
            name: getattr(split, name)
            for name in ("rate_per_s", "prefill_nodes", "decode_nodes", "binding", "rates_per_s", "transfer_s")
        },
    }
    question = {
        "requests": requests,
        "limits": limits.to_dict(),
        "link_bytes_per_s": link_bytes_per_s,
        "kv_bytes_per_token": moved,
        "convention": convention,
        **where.to_dict(),
    }

    def draw() -> Any:
        import numpy as np

        total = traffic.prompt_tokens + traffic.output_tokens

        def of_share(share: float) -> Any:
            prompt = max(1, round(share * total))
            return one_class(f"{prompt}:{max(2, round(total) - prompt)}", convention, max_tokens).demand

        base = 2.0 * float(where.time(1, 0.0, total, 1))
        grid = workload_map(
            of_share,
            where.time,
            limits,
            link=link,
            prompt_shares=[0.2, 0.4, 0.6, 0.8, 0.95],
            tbt_s=[float(x) for x in np.geomspace(base, 20 * base, 5)],
        )
        made = plot_map(grid)
        return made.get_figure() if hasattr(made, "get_figure") else made

    return analysis(
        "disaggregate",
        question=question,
        answer=answer,
        headline=f"{requests} tokens on {nodes} x {where.label}: {found.winner} carries most",
        sections=[("Capacity of each way", rows)],
        provenance=where.provenance(),
        warnings=list(where.warnings),
        draw=draw,
    )

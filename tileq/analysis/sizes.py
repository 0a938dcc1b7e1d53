"""Sizing by the state-dependent M/M/1/K: latency at a rate, or the largest rate within limits."""

from __future__ import annotations

__all__ = ["sizing"]

from dataclasses import asdict

from tileq.analysis.answer import Analysis, analysis
from tileq.words import number, percent, seconds


def sizing(
    *,
    alpha_ms: float = 12.0,
    beta_ms: float = 0.05,
    gamma_ms: float = 0.0005,
    prompt_tokens: int = 128,
    output_tokens: int = 512,
    max_batch: int = 48,
    queue_places: int = 128,
    rate: float | None = None,
    ttft: float | None = None,
    itl: float | None = None,
    blocked: float | None = None,
) -> Analysis:
    """Return the model of Ramani and Tantawi at a rate, or at the largest rate that meets limits.

    Parameters
    ----------
    alpha_ms, beta_ms, gamma_ms
        Iteration time: base, a token, a token of context; milliseconds.
    prompt_tokens, output_tokens, max_batch, queue_places
        n, m, B_max, Q.
    rate
        Requests a second; None: the largest that meets the limits.
    ttft, itl, blocked
        Limits: seconds, seconds, share of requests turned away.

    Examples
    --------
    >>> round(sizing(ttft=0.06).to_dict()["rate_per_s"], 5)
    2.94946
    """
    from tileq_theory.errors import InputError
    from tileq_theory.latency import SizingModel

    model = SizingModel(alpha_ms, beta_ms, gamma_ms, prompt_tokens, output_tokens, max_batch, queue_places)
    limits = {"ttft_s": ttft, "itl_s": itl, "blocked": blocked}
    if rate is not None and any(limit is not None for limit in limits.values()):
        raise InputError("both a rate and limits are given; expected the rate to judge or the limits to meet")
    if rate is None and all(limit is None for limit in limits.values()):
        raise InputError("neither a rate nor a limit is given; expected rate, or one of ttft, itl and blocked")
    if rate is not None:
        point = model.at(rate)
    else:
        point = model.largest_rate(
            ttft_ms=None if ttft is None else 1e3 * ttft, itl_ms=None if itl is None else 1e3 * itl, blocked=blocked
        )
    rows = [
        ("rate", f"{number(point.rate_per_s, 6)} requests/s"),
        ("turned away", percent(point.blocked)),
        ("in batch", number(point.in_batch)),
        ("waiting", seconds(point.waiting_ms / 1e3)),
        ("TTFT", seconds(point.ttft_ms / 1e3)),
        ("ITL", seconds(point.itl_ms / 1e3)),
        ("saturation", f"{number(model.saturation_per_s)} requests/s"),
    ]
    return analysis(
        "sizing",
        question={**asdict(model), "rate_per_s": rate, **limits},
        answer={**asdict(point), "saturation_per_s": model.saturation_per_s},
        headline="State-dependent M/M/1/K: " + ("at a rate" if rate is not None else "largest rate within the limits"),
        sections=[("Operating point", rows)],
        provenance={"model": "Ramani and Tantawi, state-dependent M/M/1/K"},
        warnings=["means of a Markov model: services are taken as exponential given the state"],
    )

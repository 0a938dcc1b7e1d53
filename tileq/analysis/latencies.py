"""Latency of one queue in closed form: the M/G/1 family, dynamic batching, clipping, many servers."""

from __future__ import annotations

__all__ = ["KINDS", "check_kind", "latency"]

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tileq.analysis.answer import Analysis, analysis
from tileq.words import number, percent, seconds
from tileq_theory.errors import InputError, near_matches, positive, positive_int

if TYPE_CHECKING:
    from tileq_theory.latency import ServiceLaw

_KNOWN = ("fifo", "sjf", "psjf", "srpt")
_PREDICTED = ("spjf", "pspjf", "sprpt")
KINDS = (*_KNOWN, *_PREDICTED, "one-bit", "batching", "clipping", "servers")
Found = tuple[dict[str, Any], list[tuple[str, str]], list[str]]


def check_kind(kind: str) -> None:
    """Refuse a kind of latency that is not known, with the nearest that are."""
    if kind not in KINDS:
        raise InputError(f"kind {kind!r} is unknown; {near_matches('kinds of latency', kind, KINDS)}")


def latency(
    kind: str = "fifo",
    *,
    rate: float,
    service: str = "exp:1",
    seconds_per_token: float | None = None,
    setup: float = 0.0,
    alpha: float | None = None,
    tau0: float | None = None,
    max_batch: int | None = None,
    limit: float | None = None,
    loss_weight: float | None = None,
    patience: float | None = None,
    servers: int = 1,
) -> Analysis:
    """Return the mean latency of one queue with Poisson arrivals.

    Parameters
    ----------
    kind
        M/G/1 with known sizes ("fifo", "sjf", "psjf", "srpt"), exponentially predicted ones ("spjf", "pspjf", "sprpt")
        or one bit of advice with the best threshold ("one-bit"); "batching" (service alpha B + tau0, take all);
        "clipping" (outputs cut at a limit; the best one for a weight of lost tokens); "servers" (M/G/c, Kimura).
    rate
        Requests a second.
    service
        "exp:MEAN", "fixed:SECONDS", or a law of tokens ("lognormal:7:0.7") with `seconds_per_token` and `setup`.
    alpha, tau0, max_batch
        Of batching, seconds.
    limit, loss_weight, patience
        Of clipping: tokens; seconds of waiting that a lost token is worth; mean patience, seconds.
    servers
        Of servers.

    Examples
    --------
    >>> round(latency("srpt", rate=0.7).to_dict()["response_s"], 4)
    1.8746
    """
    check_kind(kind)
    offered = positive("rate", rate)
    _belongs(
        kind,
        service=None if service == "exp:1" else service,
        seconds_per_token=seconds_per_token,
        setup=setup or None,
        alpha=alpha,
        tau0=tau0,
        max_batch=max_batch,
        limit=limit,
        loss_weight=loss_weight,
        patience=patience,
        servers=None if servers == 1 and servers is not True else servers,
    )
    question: dict[str, Any] = {"kind": kind, "rate_per_s": offered}
    if kind == "batching":
        question |= {"alpha_s": alpha, "tau0_s": tau0, "max_batch": max_batch}
        found = _batching(offered, alpha, tau0, max_batch)
    else:
        question |= {"service": service, "seconds_per_token": seconds_per_token, "setup_s": setup}
        if kind == "clipping":
            question |= {"limit_tokens": limit, "loss_weight_s": loss_weight, "patience_s": patience}
            found = _clipping(offered, service, seconds_per_token, setup, limit, loss_weight, patience)
        else:
            law = _service(service, seconds_per_token, setup)
            if kind == "servers":
                question["servers"] = positive_int("servers", servers)
                found = _servers(offered, law, servers)
            else:
                found = _queue(kind, offered, law)
    answer, rows, warnings = found
    return analysis(
        "latency",
        question=question,
        answer=answer,
        headline=f"{kind} at {number(offered)} requests/s",
        sections=[("Mean latency", rows)],
        warnings=warnings,
    )


_OF = {
    **dict.fromkeys(("alpha", "tau0", "max_batch"), ("batching",)),
    **dict.fromkeys(("limit", "loss_weight", "patience"), ("clipping",)),
    **dict.fromkeys(("service", "seconds_per_token", "setup"), tuple(k for k in KINDS if k != "batching")),
    "servers": ("servers",),
}


def _belongs(kind: str, **given: object) -> None:
    """Refuse what the kind does not read: an answer that passes over it would be one to another question."""
    for name, value in given.items():
        if value is not None and kind not in _OF[name]:
            of = _OF[name][0] if len(_OF[name]) == 1 else "the kinds with a service law"
            raise InputError(f"{name} is given and kind is {kind}; expected it with {of} only")


def _service(text: str, seconds_per_token: float | None, setup: float) -> ServiceLaw:
    from tileq_theory.latency import ServiceLaw
    from tileq_theory.lengths import parse_lengths

    name, _, value = text.partition(":")
    simple: dict[str, Callable[[float], ServiceLaw]] = {
        "exp": ServiceLaw.exponential,
        "fixed": ServiceLaw.deterministic,
    }
    if name in simple and seconds_per_token is None:
        if setup:
            raise InputError(
                f"setup is {setup!r} and service is {text!r}, seconds; expected it with a law of tokens only"
            )
        try:
            return simple[name](float(value))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"service is {text!r}; expected {name}:SECONDS") from None
    if seconds_per_token is None:
        raise InputError(
            f"service is {text!r}; expected exp:MEAN or fixed:SECONDS, or a law of tokens with seconds_per_token"
        )
    return ServiceLaw.from_lengths(parse_lengths(text), seconds_per_token=seconds_per_token, setup_s=setup)


def _queue(kind: str, rate: float, law: ServiceLaw) -> Found:
    from tileq_theory.latency import ExponentialPrediction, best_threshold, mg1, mg1_predicted

    if kind == "one-bit":
        best = best_threshold(rate_per_s=rate, service=law)
        answer: dict[str, Any] = asdict(best)
        fifo = mg1("fifo", rate_per_s=rate, service=law)
        rows = [
            ("response", f"{seconds(best.response_s)} with the best threshold, {seconds(best.threshold_s)}"),
            ("first come", seconds(fifo.response_s)),
        ]
        return answer, rows, ["the bit is taken as right; requests wait by it, first come first served within"]
    made = (
        mg1(kind, rate_per_s=rate, service=law)
        if kind in _KNOWN
        else mg1_predicted(kind, rate_per_s=rate, service=law, predictor=ExponentialPrediction())
    )
    rows = [
        ("load", percent(made.load)),
        ("response", seconds(made.response_s)),
        ("waiting", seconds(made.waiting_s)),
        ("in system", number(made.in_system)),
    ]
    notes = [] if kind in _KNOWN else ["predictions are exponential with the true size as their mean"]
    return asdict(made), rows, notes


def _batching(rate: float, alpha: float | None, tau0: float | None, max_batch: int | None) -> Found:
    from tileq_theory.latency import batch_queue, batch_response_bounds

    if alpha is None or tau0 is None:
        raise InputError("batching needs alpha and tau0, seconds: a batch of B takes alpha B + tau0")
    found = batch_queue(rate_per_s=rate, service=(alpha, tau0), max_batch=max_batch)
    answer = asdict(found)
    answer.pop("left_behind")
    rows = [("response", seconds(found.response_s)), ("batch", f"{number(found.mean_batch)} on average")]
    if max_batch is None:
        bounds = batch_response_bounds(rate_per_s=rate, alpha_s=alpha, tau0_s=tau0)
        answer["response_bounds_s"] = bounds
        rows.append(("bounded by", f"{seconds(min(bounds))} (Inoue)"))
    rows.append(("busy", percent(found.busy)))
    return answer, rows, []


def _clipping(
    rate: float,
    service: str,
    seconds_per_token: float | None,
    setup: float,
    limit: float | None,
    loss_weight: float | None,
    patience: float | None,
) -> Found:
    from tileq_theory.latency import ServiceLaw, TokenClipping
    from tileq_theory.lengths import parse_lengths

    if seconds_per_token is None:
        raise InputError("clipping needs seconds_per_token and a law of tokens as service, as lognormal:7:0.7")
    if (limit is None) == (loss_weight is None):
        raise InputError("clipping needs limit (tokens) or loss_weight (the best limit is then found); expected one")
    name, *numbers = service.split(":")
    if name == "lognormal" and len(numbers) == 2:  # the continuous law of the source
        try:
            mu, sigma = float(numbers[0]), float(numbers[1])
        except ValueError:
            raise InputError(f"service is {service!r}; expected lognormal:MU:SIGMA") from None
        queue = TokenClipping.lognormal(mu, sigma, seconds_per_token=seconds_per_token, rate_per_s=rate, setup_s=setup)
    else:
        tokens = ServiceLaw.from_lengths(parse_lengths(service), seconds_per_token=1.0)
        queue = TokenClipping(tokens, seconds_per_token, rate, setup)
    answer: dict[str, Any] = {}
    if limit is not None:
        if patience is not None:
            raise InputError("patience is given with limit; expected it with loss_weight")
        found = queue.at(limit)
    else:
        choice = queue.best_limit(loss_weight_s=positive("loss_weight", loss_weight or 0.0), patience_s=patience)
        answer, found = {"cost": choice.cost}, choice.queue
    rows = [
        ("limit", f"{number(found.limit_tokens)} tokens"),
        ("load", percent(found.load)),
        ("waiting", seconds(found.waiting_s)),
        ("clipped", f"{percent(found.clipped_share)} of requests, {percent(found.lost_share)} of tokens lost"),
    ]
    return {**answer, **asdict(found)}, rows, []


def _servers(rate: float, law: ServiceLaw, servers: int) -> Found:
    from tileq_theory.latency import mg_c

    found = mg_c(rate, servers, law)
    rows = [
        ("load", percent(found.load)),
        ("waits", percent(found.wait_probability)),
        ("waiting", seconds(found.waiting_s)),
        ("response", seconds(found.response_s)),
    ]
    return asdict(found), rows, [] if found.exact else ["Kimura's approximation; it is exact for M/M/c and M/G/1 only"]

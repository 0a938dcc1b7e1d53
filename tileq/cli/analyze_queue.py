"""`tileq analyze latency | sizing | network`: questions about queues without an iteration time."""

from __future__ import annotations

__all__ = ["COMMANDS"]

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tileq.cli import options as o
from tileq.cli.analyze_show import present

Kind = Annotated[
    str, Parameter(help="fifo, sjf, psjf, srpt, spjf, pspjf, sprpt, one-bit, batching, clipping, servers.")
]
Rate = Annotated[float | None, o.option("Requests/s; needed.", o.TRAFFIC, converter=o.number)]
AnyRate = Annotated[float | None, o.option("Requests/s to judge.", o.TRAFFIC, converter=o.number)]
Service = Annotated[str, o.option("exp:1, fixed:1, or a law of tokens.", o.TRAFFIC)]
PerToken = Annotated[float | None, o.option("Of a law of tokens.", o.TRAFFIC, converter=o.number)]
Setup = Annotated[float, o.option("Seconds beside the tokens.", o.TRAFFIC, converter=o.number)]
Alpha = Annotated[float | None, o.option("batching: seconds a request.", o.ENGINE, converter=o.number)]
Tau0 = Annotated[float | None, o.option("batching: seconds a batch.", o.ENGINE, converter=o.number)]
AnyBatch = Annotated[int | None, o.option("batching: largest batch.", o.ENGINE, converter=o.whole)]
Limit = Annotated[float | None, o.option("clipping: tokens.", o.LIMITS, converter=o.number)]
Loss = Annotated[float | None, o.option("clipping: seconds a lost token costs.", o.LIMITS, converter=o.number)]
Patience = Annotated[float | None, o.option("clipping: mean patience, s.", o.LIMITS, converter=o.number)]
Servers = Annotated[int, o.option("servers: how many.", o.ENGINE, converter=o.whole)]
AlphaMs = Annotated[float, o.option("ms of an iteration.", o.MACHINE, converter=o.number)]
BetaMs = Annotated[float, o.option("ms a token.", o.MACHINE, converter=o.number)]
GammaMs = Annotated[float, o.option("ms a token of context.", o.MACHINE, converter=o.number)]
Prompt = Annotated[int, o.option("n.", o.TRAFFIC, converter=o.whole)]
Output = Annotated[int, o.option("m.", o.TRAFFIC, converter=o.whole)]
Batch = Annotated[int, o.option("B_max.", o.ENGINE, converter=o.whole)]
Places = Annotated[int, o.option("Q.", o.ENGINE, converter=o.whole)]
Ttft = Annotated[float | None, o.option("First token within, s.", o.LIMITS, converter=o.number)]
Itl = Annotated[float | None, o.option("Next token within, s.", o.LIMITS, converter=o.number)]
Blocked = Annotated[float | None, o.option("Share turned away at most.", o.LIMITS, converter=o.number)]
File = Annotated[Path | None, Parameter(help="JSON: engines, steps, routing; none: Rybko-Stolyar.")]
Scale = Annotated[float, o.option("All arrivals times this.", o.TRAFFIC, converter=o.number)]
Priority = Annotated[str | None, o.option("Steps, most urgent first, commas between.", o.ENGINE)]


def latency(
    kind: Kind = "fifo",
    *,
    rate: Rate = None,
    service: Service = "exp:1",
    seconds_per_token: PerToken = None,
    setup: Setup = 0.0,
    alpha: Alpha = None,
    tau0: Tau0 = None,
    max_batch: AnyBatch = None,
    servers: Servers = 1,
    limit: Limit = None,
    loss_weight: Loss = None,
    patience: Patience = None,
    json: o.Json = False,
) -> None:
    """Latency of one queue: M/G/1 family, batching, clipping, M/G/c."""
    from tileq import analysis
    from tileq.analysis.latencies import check_kind
    from tileq_theory.errors import InputError

    check_kind(kind)  # an unknown word is told before what is missing
    if rate is None:
        raise InputError("--rate is not given; expected requests per second")
    present(
        lambda: analysis.latency(
            kind,
            rate=rate,
            service=service,
            seconds_per_token=seconds_per_token,
            setup=setup,
            alpha=alpha,
            tau0=tau0,
            max_batch=max_batch,
            limit=limit,
            loss_weight=loss_weight,
            patience=patience,
            servers=servers,
        ),
        plot=None,
        json=json,
    )


def sizing(
    *,
    alpha_ms: AlphaMs = 12.0,
    beta_ms: BetaMs = 0.05,
    gamma_ms: GammaMs = 0.0005,
    prompt_tokens: Prompt = 128,
    output_tokens: Output = 512,
    max_batch: Batch = 48,
    queue_places: Places = 128,
    rate: AnyRate = None,
    ttft: Ttft = None,
    itl: Itl = None,
    blocked: Blocked = None,
    json: o.Json = False,
) -> None:
    """State-dependent M/M/1/K: latency at a rate, or the largest rate."""
    from tileq import analysis

    present(
        lambda: analysis.sizing(
            alpha_ms=alpha_ms,
            beta_ms=beta_ms,
            gamma_ms=gamma_ms,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            max_batch=max_batch,
            queue_places=queue_places,
            rate=rate,
            ttft=ttft,
            itl=itl,
            blocked=blocked,
        ),
        plot=None,
        json=json,
    )


def network(file: File = None, *, rate: Scale = 1.0, priority: Priority = None, json: o.Json = False) -> None:
    """Network of engines: loads, bottleneck, latency, priority stability."""
    from tileq import analysis

    order = None if priority is None else [name.strip() for name in priority.split(",")]
    present(lambda: analysis.network(file, rate=rate, priority=order), plot=None, json=json)


COMMANDS = (
    (latency, "Example: tileq analyze latency srpt --rate 0.7 --service exp:1"),
    (sizing, "Example: tileq analyze sizing --ttft 0.06"),
    (network, "Example: tileq analyze network --rate 1.1 --priority ab.2,ba.2,ab.1,ba.1"),
)

"""An OpenAI-compatible vLLM server on the loopback in a validation, driven by `vllm bench serve`.

A server has an iteration time of its own: its API process and the client run beside the engine, decisions are taken
one iteration ahead (not on a CPU, where vLLM switches that off), and time is real. It is therefore profiled by what its
scheduler records while it serves: a third of the seats in a closed loop, then four times the seats. lambda* of the fit
to that, at the budget that it serves with, is the prediction. In between (the machine's speed wanders) further closed
loops of four times the seats measure the edge; Poisson arrivals at fractions of lambda* give the latencies.
"""

from __future__ import annotations

__all__ = ["ServerBench"]

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from tileq.validating_vllm_bench import (
    CROWD,
    ROUNDS,
    SCHEDULERS,
    Bench,
    Fitted,
    edge_of,
    four,
    of_simulation,
    over_edges,
    tokens_of,
)
from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from tileq.validation_kept import Kept
    from tileq_engine.requests import Requests
    from tileq_engine.vllm.bench_client import Seen
    from tileq_engine.vllm.recording import Record
    from tileq_engine.vllm.server import Server

_START_S = 600.0


class ServerBench:
    """The server's part of a validation.

    Parameters
    ----------
    bench
        The model, and what vLLM is started with.
    kept
        Where results are kept; the logs of server and client lie beside them.
    lengths
        The requests, all at time 0.
    seed
        Of arrivals and prompts.
    start_s
        Seconds that a server may take to come up.
    """

    def __init__(self, bench: Bench, kept: Kept, lengths: Requests, seed: int, start_s: float = _START_S) -> None:
        from tileq_engine.vllm.server import has_tokenizer

        if not has_tokenizer(bench.folder):
            raise InputError(
                f"{bench.folder} has no tokenizer, which a server and its client need; add one, or give --no-server"
            )
        self.bench, self.kept, self.lengths, self.seed, self.start_s = bench, kept, lengths, seed, start_s
        self.logs = kept.folder or Path(tempfile.mkdtemp(prefix="tileq-vllm-server-"))
        self.fitted: Fitted | None = None
        self.rates: list[float] = []

    def document(self, names: Sequence[str], plan: Any, fractions: Sequence[float]) -> dict[str, Any]:
        """Return what the servers of all policies said, one after the other."""
        self.bench.close()
        cases = []
        for name in names:
            case = self.kept.or_made(f"server-{name}", lambda name=name: self._policy(name, plan, fractions))  # type: ignore[misc]
            if self.fitted is None and "profile" in case:
                self.fitted, self.rates = Fitted.of(case["profile"]), case["rates_by_profile_per_s"]
            cases.append(case)
        edges = {case["policy"]: case["edge_per_s"] for case in cases if case["edge_per_s"]}
        first = cases[0]["rate_per_s"]
        best = max(edges.values(), default=None)
        return {
            "client": "vllm bench serve",
            "logs": str(self.logs),
            "token_budget": int(plan.token_budget),
            "rate_per_s": first,
            "edges_per_s": edges,
            "rates_by_profile_per_s": self.rates,
            "rate_over_best_edge": None if best is None else first / best - 1.0,
            "rate_over_edge": over_edges(first, self.rates, cases[0]["edges_per_s"]),
            "cases": cases,
        }

    def _policy(self, name: str, plan: Any, fractions: Sequence[float]) -> dict[str, Any]:
        """Start a server with policy `name`, profile it where none was, drive it, and stop it."""
        from tileq_engine.vllm.recording import read_record
        from tileq_engine.vllm.replaying import replay_record
        from tileq_engine.vllm.server import Server

        path = self.logs / f"server-{name}.record.jsonl"
        log = self.logs / f"server-{name}.log"
        settings = {**self.bench.settings(name, plan), "record": str(path)}
        own, budget = self.bench.policy(name, plan), int(plan.token_budget)
        self.bench.say(f"server with {name}: starting, its log is {log}")
        document: dict[str, Any] = {"policy": name, "describes": own.describe()}
        environment = {**self.bench.environment, "VLLM_LOGGING_LEVEL": "INFO"}
        with Server(
            self.bench.folder,
            SCHEDULERS[name][0],
            settings,
            self._flags(),
            log,
            start_s=self.start_s,
            environment=environment,
        ) as server:
            drives = _Drives(server, self.logs, f"server-{name}", path, self.seed)
            document |= self._rounds(drives, budget)
            assert self.fitted is not None
            rate = self.bench.rate_per_s(self.fitted.time, self.lengths, budget)
            document["rate_per_s"] = rate
            document["edge_simulated_per_s"] = self.bench.simulated_edge(name, plan, self.fitted.time, self.lengths)
            self.bench.say(f"server with {name}: edge {_short(document['edge_per_s'])}, lambda* {_short(rate)}")
            document["loads"] = [self._load(drives, f, rate, document["edge_per_s"], own, budget) for f in fractions]
            document["metrics"] = server.metrics()
        record = read_record(path)
        document["replay"] = replay_record(record, own, self.bench.config(budget)).to_dict()
        return document

    def _flags(self) -> list[str]:
        flags = ["--enforce-eager", "--seed", "0"]
        for name, value in self.bench.options().items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                flags.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                flags += [f"--{flag}", str(value)]
        return flags

    def _rounds(self, drives: _Drives, budget: int) -> dict[str, Any]:
        """Return the edge of every round, and (the first time) the fit to the profiles around them."""
        from tileq_engine.vllm.measured import saturated_rate_per_s

        tables = [] if self.fitted is not None else [self._profiled(drives, "start")]
        profiled = bool(tables)
        edges, clients = [], []
        for k in range(ROUNDS):
            record, client = drives.run(f"saturated-{k}", self.lengths, concurrency=CROWD * self.bench.seats)
            edges.append(saturated_rate_per_s(record, tokens_of(self.lengths)))
            clients.append(client)
            self.bench.say(f"server: saturated run {k + 1} of {ROUNDS}: {_short(edges[-1])}")
            if profiled:
                tables.append(self._profiled(drives, str(k)))
        document = edge_of(edges)
        document["throughput_per_s"] = float(np.mean([client.throughput_per_s for client in clients]))
        document["failed"] = sum(client.failed for client in clients)
        if profiled:
            self.fitted = Fitted.to(np.concatenate(tables))
            fits = [Fitted.to(table) for table in tables]
            self.rates = [self.bench.rate_per_s(fit.time, self.lengths, budget) for fit in fits]
            document |= {"profile": self.fitted.to_dict(), "rates_by_profile_per_s": self.rates}
        return document

    def _profiled(self, drives: _Drives, key: str) -> Float[np.ndarray, "iteration 5"]:
        """Return the iterations of closed loops, a third of the seats and a crowd, until the last request came.

        The first fifth of each is left out, as it is for the edge: requests and memory come in then. (A loop of just
        the seats would not do: whoever ends is followed after the client's and the API's time, which the engine then
        waits for, and iterations of the same shape take 4 to 15 % longer.)
        """
        seats = self.bench.seats
        few = self.lengths.head(max(50, len(self.lengths) // 4))
        many = self.lengths.head(max(50, len(self.lengths) // 2))
        runs = [
            drives.run(f"third-{key}", few, concurrency=max(2, seats // 3)),
            drives.run(f"crowd-{key}", many, concurrency=CROWD * seats),
        ]
        tables = [record.shapes_and_seconds(last=record.last_arrival()) for record, _ in runs]
        return np.concatenate([table[len(table) // 5 :] for table in tables])

    def _load(
        self, drives: _Drives, fraction: float, rate_per_s: float, edge: float | None, own: Any, budget: int
    ) -> dict[str, Any]:
        """Drive with Poisson arrivals at a fraction of lambda*; simulate the arrivals that the scheduler saw."""
        from tileq_engine.simulator import simulate
        from tileq_engine.vllm.measured import moments
        from tileq_engine.vllm.replaying import requests_of

        assert self.fitted is not None
        rate = fraction * rate_per_s
        record, client = drives.run(f"{fraction:g}", self.lengths, rate_per_s=rate)
        asked = requests_of(record)
        raw = simulate(asked, own, self.fitted.time, self.bench.config(budget))
        span_s = float(raw.finish_ps.max() - asked.arrival_ps[0]) / 1e12
        self.bench.say(f"server: at {fraction:g} of lambda* done")
        ttft, gaps = moments(record)
        return {
            "fraction": fraction,
            "rate_per_s": rate,
            "load": None if not edge else rate / edge,
            "measured": {
                **four(client.ttft_s, client.itl_s),
                "throughput_per_s": client.throughput_per_s,
                "completed": client.completed,
                "failed": client.failed,
            },
            "scheduler": four(ttft, gaps),
            "simulated": {**of_simulation(raw), "throughput_per_s": len(asked) / span_s},
        }


class _Drives:
    """Runs of the client against one server, each with its part of the scheduler's record."""

    def __init__(self, server: Server, folder: Path, prefix: str, path: Path, seed: int) -> None:
        self.server, self.folder, self.prefix, self.path, self.seed = server, folder, prefix, path, seed
        self.told = self.runs = 0

    def run(self, key: str, asked: Requests, **how: Any) -> tuple[Record, Seen]:
        """Drive the server with `asked`; return what the scheduler recorded, and what the client saw."""
        from tileq_engine.vllm.bench_client import bench_serve
        from tileq_engine.vllm.measured import part_of
        from tileq_engine.vllm.recording import read_record

        seed = 100 * self.seed + self.runs  # other prompts and arrivals every time
        seen = bench_serve(self.server, asked, self.folder, f"{self.prefix}-{key}", seed=seed, **how)
        whole = read_record(self.path)
        first, self.told = self.told, len(whole.requests)
        self.runs += 1
        return part_of(whole, first, self.told), seen


def _short(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.4g}/s"


def replays_of(case: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the replays of a policy's offline runs."""
    return [*case["replays"], *(load["replay"] for load in case["loads"])]

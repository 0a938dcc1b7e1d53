"""What a scheduler inside vLLM was asked and what it decided, iteration by iteration; kept, or written to a file.

With ``"record": "FILE"`` in the settings the scheduler writes a line a request, a line a decision and a line when its
output is there (JSON); `tileq validate --executor vllm` reads them, and replays them in the simulator.
"""

from __future__ import annotations

__all__ = ["Iteration", "Record", "RecordedMirror", "Told", "read_record"]

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from jaxtyping import Float

from tileq_engine.clock import PS_PER_S
from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.vllm.asked import Asked
from tileq_engine.vllm.mirror import Decision, Mirror
from tileq_engine.vllm.mirror_edit import slot_of
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

KIND = "tileq vllm record"
_KEPT = 256  # iterations that stay in memory where they are written to a file: those in flight, and some


@dataclass(frozen=True, slots=True)
class Told:
    """A request as the rules were told of it; `after_ps` is the instant of the decision before, -1 before any."""

    name: str
    arrival_ps: int
    after_ps: int
    prompt_tokens: int
    output_tokens: int
    predicted_output_tokens: int
    tbt_limit_s: float
    priority: int
    paying: bool
    tenant: int


@dataclass(slots=True)
class Iteration:
    """A decision and what became of it; instants of the mirror's clock.

    Parameters
    ----------
    decided_ps, closed_ps, landed_ps
        When it was decided, when the rules took it to end, when its output was there; -1: not yet.
    members
        (index of the request, prompt tokens or 0) in order of admission; 0 is a decode.
    shape
        Tokens, query-key pairs, KV tokens read, sequences.
    alone
        Nobody was left, and nobody had come, when it was taken to end: the engine was idle after it.
    otherwise
        vLLM carried it out in another way.
    """

    decided_ps: int
    members: list[tuple[int, int]]
    shape: tuple[int, int, int, int]
    closed_ps: int = -1
    landed_ps: int = -1
    alone: bool = False
    otherwise: bool = False


@dataclass(slots=True)
class Record:
    """Requests, in the order in which they were told of, and iterations.

    `cut` is the number of iterations up to which a simulator can follow: after them a request was given up, the plan
    was changed, or vLLM decided by itself; None: all of them.
    """

    token_budget: int = 0
    requests: list[Told] = field(default_factory=list)
    iterations: list[Iteration] = field(default_factory=list)
    cut: int | None = None
    reason: str = ""

    def last_arrival(self) -> int:
        """Return how many iterations had been decided when the last request came."""
        latest = max((told.after_ps for told in self.requests), default=-1)
        return sum(1 for it in self.iterations if it.decided_ps <= latest)

    def shapes_and_seconds(self, first: int = 0, last: int | None = None) -> Float[np.ndarray, "iteration 5"]:
        """Return (n, A, K, m) and seconds of the iterations whose output is there.

        An iteration lasts from when the one before had its output to its own: what the engine does in between
        (answers are sent, requests taken in) holds the next decision up and belongs to it. After an idle engine it
        begins when it was decided.
        """
        rows = []
        before, idle = -1, True
        for k, it in enumerate(self.iterations[:last]):
            if it.landed_ps < 0:
                continue
            if k >= first:
                began = max(before, it.decided_ps) if idle else before
                rows.append((*map(float, it.shape), (it.landed_ps - began) / PS_PER_S))
            before, idle = it.landed_ps, it.alone
        return np.asarray(rows, dtype=float).reshape(-1, 5)


class RecordedMirror(Mirror):
    """A mirror that keeps a `Record`; where `path` is given it writes it there, and keeps of it but the end.

    A server may run for weeks: what is written down does not stay in memory.
    """

    def __init__(
        self,
        policy: Policy,
        config: EngineConfig,
        *,
        time: IterationTime | None = None,
        tenants: int = 1,
        path: Path | None = None,
    ) -> None:
        self.record = Record(token_budget=config.token_budget)
        self._places: dict[str, int] = {}  # of the requests that are here
        self._told = self._let_go = 0  # requests told of; iterations that are in the file alone
        self._decided_ps = -1
        self._file: TextIO | None = None
        self._keeps = path is None
        self._noted = False  # the open iteration is the record's last
        super().__init__(policy, config, time=time, tenants=tenants)
        if path is not None:
            try:
                self._file = path.open("w", encoding="utf-8", buffering=1)
            except OSError as error:
                raise InputError(
                    f"record is {str(path)!r}, which cannot be written ({error.strerror}); give another file"
                ) from None
            self._write({"kind": KIND, "schema_version": 1, "policy": policy.name, "token_budget": config.token_budget})

    def add(
        self,
        name: str,
        asked: Asked,
        *,
        prompt_tokens: int,
        output_tokens: int,
        arrival_ps: int | None = None,
        priority: int = 0,
        front: bool = False,
    ) -> None:
        """Take in a request, and note it."""
        super().add(
            name,
            asked,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            arrival_ps=arrival_ps,
            priority=priority,
            front=front,
        )
        new = self._coming[name]
        if front or name in self._places:
            self._cut(f"request {name} came back, or ahead of all others")
        foreseen = new.asked.predicted_output_tokens
        told = Told(
            name=name,
            arrival_ps=new.arrival_ps,
            after_ps=self._decided_ps,
            prompt_tokens=new.prompt_tokens,
            output_tokens=new.output_tokens,
            predicted_output_tokens=(0 if self._blind else new.output_tokens) if foreseen is None else foreseen,
            tbt_limit_s=new.asked.tbt_limit_s,
            priority=new.priority,
            paying=new.asked.paying,
            tenant=min(new.asked.tenant, self.rules.tenants - 1),
        )
        self._places[name] = self._told
        self._told += 1
        if self._keeps:
            self.record.requests.append(told)
        self._write({"request": asdict(told)})

    def leave(self, names: Iterable[str]) -> None:
        """Forget requests; one that had not ended was given up, and a simulator cannot follow from here on."""
        names = list(names)
        given_up = any(name in self for name in names)
        if given_up:
            self._cut("a request was given up before its end")
        super().leave(names)
        for name in names:
            self._places.pop(name, None)
        if given_up and not len(self) and self.record.iterations and not self.open:  # else that is seen as it ends
            self.record.iterations[-1].alone = True
            self._write({"alone": self._let_go + len(self.record.iterations) - 1})

    def decide(self, now_ps: int, free_blocks: int) -> Decision:
        """Form a batch, and note it."""
        decision = super().decide(now_ps, free_blocks)
        self._decided_ps = self.now_ps
        self._noted = bool(decision.tokens)
        if decision.tokens:
            self._note(decision.tokens, set(decision.prefills))
        return decision

    def settle(self, ran: Mapping[str, tuple[int, int]], dropped: Mapping[str, bool]) -> None:
        """Follow vLLM where it did otherwise, and note that it did."""
        super().settle(ran, dropped)
        if not self.open:
            if self._noted:  # nothing of it ran: it was none
                self.record.iterations.pop()
            self._noted = False
            return
        if not self._noted:  # it was vLLM's own
            self._note({name: tokens for name, (tokens, _) in ran.items()}, {n for n in ran if not self._decodes(n)})
            self._noted = True
        last = self.record.iterations[-1]
        last.otherwise, last.shape = True, self.shape()

    def _note(self, tokens: Mapping[str, int], prefills: set[str]) -> None:
        places = self._places  # vLLM, deciding by itself, may run somebody of whom the rules were not told
        members = [(places[n], count if n in prefills else 0) for n, count in tokens.items() if n in places]
        self.record.iterations.append(Iteration(self.now_ps, members, self.shape()))

    def _decodes(self, name: str) -> bool:
        """Return whether a member of the open batch decodes in it."""
        slot = slot_of(self.state, self.index[name]) if name in self.index else -1
        return slot >= 0 and int(self.state.B["dec"][slot]) == 1

    def close(self, end_ps: int) -> list[str]:
        """End the open iteration, and note when."""
        was_open, noted = self.open, self._noted
        ended = super().close(end_ps)
        if was_open and noted:
            self._noted = False
            last = self.record.iterations[-1]
            last.closed_ps = last.landed_ps = self.now_ps
            last.alone = not len(self)
            self._write({"iteration": asdict(last)})
            self._forget_written()
        return ended

    def _forget_written(self) -> None:
        """Let the first iterations go once twice as many as are kept have been written."""
        kept = self.record.iterations
        if not self._keeps and len(kept) >= 2 * _KEPT:
            self._let_go += len(kept) - _KEPT
            del kept[:-_KEPT]

    def shift(self, end_ps: int, by_ps: int) -> None:
        """Move tokens to when they were there, and note it."""
        super().shift(end_ps, by_ps)
        for k in range(len(self.record.iterations) - 1, -1, -1):
            if self.record.iterations[k].closed_ps == end_ps:
                self.record.iterations[k].landed_ps = end_ps + by_ps
                self._write({"landed": [self._let_go + k, end_ps + by_ps]})
                break

    def blank(self, now_ps: int) -> None:
        """Leave an iteration to vLLM; a simulator cannot follow from here on."""
        self._cut("vLLM decided an iteration by itself")
        self._noted = False
        super().blank(now_ps)

    def unseat(self, name: str, prompt_tokens: int) -> None:
        """Put a resident back; a simulator cannot follow from here on."""
        self._cut("vLLM preempted a request by itself")
        super().unseat(name, prompt_tokens)

    def progress(self, name: str, computed_tokens: int, produced_tokens: int) -> None:
        """Correct a resident's progress; a simulator cannot follow from here on."""
        self._cut("tokens came several at once")
        super().progress(name, computed_tokens, produced_tokens)

    def set_scalars(self, values: Mapping[str, float]) -> None:
        """Change settings; after the first decision a simulator cannot follow from here on."""
        if self.record.iterations:
            self._cut("budget or offset were changed")
        elif "budget" in values:
            self.record.token_budget = int(values["budget"])
            self._write({"token_budget": int(values["budget"])})
        super().set_scalars(values)

    def _cut(self, reason: str) -> None:
        if self.record.cut is None:
            self.record.cut, self.record.reason = self._let_go + len(self.record.iterations), reason
            self._write({"cut": self.record.cut, "reason": reason})

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(line) + "\n")
        except OSError:  # a full disk is no reason to stop serving
            self._file = None


def read_record(path: Path) -> Record:
    """Return what a scheduler has written to `path` so far; a line that is being written is left out."""
    record = Record()
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a record of Tileq's scheduler") from None
    for k, line in enumerate(lines):
        found = _parsed(path, k, line)
        if "request" in found:
            record.requests.append(Told(**found["request"]))
        elif "iteration" in found:
            given = found["iteration"]
            members = [(int(i), int(tokens)) for i, tokens in given.pop("members")]
            record.iterations.append(Iteration(**{**given, "members": members, "shape": tuple(given["shape"])}))
        elif "landed" in found:
            place, landed = found["landed"]
            record.iterations[place].landed_ps = landed
        elif "alone" in found:
            record.iterations[found["alone"]].alone = True
        elif "cut" in found:
            record.cut, record.reason = found["cut"], found["reason"]
        elif "token_budget" in found:
            record.token_budget = found["token_budget"]
    return record


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{path}: line {number + 1} is no JSON object; expected a record of Tileq's scheduler")
    return found

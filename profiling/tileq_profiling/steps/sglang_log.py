"""SGLang server logs: `Prefill batch` and `Decode batch` lines, whose fields vary by version and are read by name.

A decode line's throughput is tokens over time since the decode line before (some 40 steps). Where no prefill came
between and as many requests run as before, each step took running * accepted / throughput. Newer versions give a
prefill line's `input throughput`: tokens of the prefill before it over the time between the two. Batches are scheduled
while the one before still runs, so the first gap of a row is short and the others belong to a neighbour: a time is
taken from the third of three prefills in a row, of one size, behind which requests were queued all along. Source:
scheduler metrics of sgl-project/sglang.
"""

from __future__ import annotations

__all__ = ["PROFILE_READERS", "RUN_READERS"]

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tileq_profiling.profile import Conditions
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import ProfileOptions, ProfileReader, RunOptions, RunReader
from tileq_profiling.steps.log_lines import LogClock, pieces
from tileq_profiling.steps.make_run import make_run
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import Part, ProfileReading, finish
from tileq_profiling.steps.run import MeasuredRun
from tileq_profiling.steps.series import SeriesBuilder
from tileq_profiling.steps.steps_table import StepRows
from tileq_theory.errors import InputError

_LINE = re.compile(rb"(?P<before>[^\n]{0,200}?)(?P<kind>Prefill|Decode) batch[.,:]? (?P<rest>[^\n]*)")
_SNIFF = rb"(?:Prefill|Decode) batch[.,:]? .{0,400}#queue-req|Decode batch[.,:]? #running-req"
_FIELD = re.compile(rb"([#\w][\w #()/.-]*?): (-?\d+(?:\.\d+)?|True|False)(?=[,\s\"\\;]|$)")
_RANK = re.compile(rb"\d\d:\d\d:\d\d[^\]]*?((?: (?:DP|TP|PP|EP)\d+)+)\]|\[gpu=(\d+)\]")
_CAPACITY = re.compile(rb"max_total_num_tokens=(\d+)")
_NEEDED = {"Prefill": (b"#new-token",), "Decode": (b"#running-req",)}
_TOKENS = (b"#token", b"#full token", b"#full-token")
_USAGE = (b"token usage", b"full token usage")
_GEN = b"gen throughput (token/s)"
_INPUT = b"input throughput (token/s)"
_EVEN = 1.05  # sizes that differ by less take the same time


@dataclass(frozen=True, slots=True)
class _Line:
    kind: str
    rank: str
    t_s: float | None
    fields: dict[bytes, float]

    def get(self, *names: bytes) -> float:
        return next((self.fields[name] for name in names if name in self.fields), float("nan"))


@dataclass(slots=True)
class _Log:
    left: Counter[str] = field(default_factory=Counter)

    def lines(self, source: Source) -> Iterator[_Line]:
        clock = LogClock()
        for piece in pieces(source):
            for match in _LINE.finditer(piece):
                kind = match.group("kind").decode()
                rest = match.group("rest")
                if match.end() == len(piece):
                    rest += b"\x00"  # no line end: the last number may be cut, and is not taken
                fields = {name: _number(value) for name, value in _FIELD.findall(rest)}
                if any(name not in fields for name in _NEEDED[kind]) or b" batch" in rest:
                    self.left[f"truncated or overwritten {kind.lower()} lines"] += 1
                    continue
                before = match.group("before")
                yield _Line(kind, _rank(before), clock.seconds(before), fields)


def _number(text: bytes) -> float:
    return {b"True": 1.0, b"False": 0.0}[text] if text in (b"True", b"False") else float(text)


def _rank(before: bytes) -> str:
    found = _RANK.search(before)
    if found is None:
        return ""
    return (found.group(1) or b" GPU" + found.group(2)).decode().strip()


class _Steps:
    """Step times of one rank, from a line and the one before it."""

    def __init__(self, limit: int) -> None:
        self.decode: _Line | None = None
        self.prefills: list[_Line] = []  # those in a row up to now, the last two
        self.rows = StepRows(limit)
        self.unused: Counter[str] = Counter()

    def add(self, line: _Line) -> None:
        if line.kind == "Decode":
            self._decode(line)
            self.decode, self.prefills = line, []
        else:
            self._prefill(line)
            self.decode, self.prefills = None, [*self.prefills[-1:], line]

    def _decode(self, line: _Line) -> None:
        before, running, rate = self.decode, line.get(b"#running-req"), line.get(_GEN)
        if not rate > 0 or not running > 0:
            self.unused["decode lines without a throughput"] += 1
        elif before is None or before.get(b"#running-req") != running:
            self.unused["decode lines whose interval held a prefill or another batch"] += 1
        else:
            accepted = line.fields.get(b"accept len", 1.0)
            kv = (line.get(*_TOKENS) + before.get(*_TOKENS)) / 2
            self.rows.append(running, 0.0, kv, running, running * max(accepted, 1.0) / rate)

    def _prefill(self, line: _Line) -> None:
        rate, tokens = line.get(_INPUT), [before.get(b"#new-token") for before in self.prefills]
        queued = all(before.get(b"#queue-req") > 0 for before in self.prefills)
        even = len(tokens) == 2 and min(tokens) > 0 and max(tokens) <= _EVEN * min(tokens)
        if not rate > 0 or not queued or not even:
            self.unused["prefill lines whose time is not told"] += 1
        else:
            before, size = self.prefills[-1], tokens[-1]
            self.rows.append(size, size, 0.0, max(before.get(b"#new-seq"), 1.0), size / rate)


def _read_profile(place: Place, options: ProfileOptions) -> ProfileReading:
    source, log = place.text(), _Log()
    ranks: dict[str, _Steps] = {}
    for line in log.lines(source):
        if line.rank not in ranks:
            ranks[line.rank] = _Steps(options.max_rows)
        ranks[line.rank].add(line)
    unused = sum((steps.unused for steps in ranks.values()), Counter[str]())
    conditions = Conditions(source=source.name)
    parts = [
        Part({"rank": rank} if rank else {}, steps.rows.profile(conditions))
        for rank, steps in ranks.items()
        if steps.rows.held
    ]
    left = [f"{count} {reason}" for reason, count in (log.left + unused).items()]
    if not parts:
        raise InputError(
            f"{source.name} holds no interval that tells a step time ({'; '.join(left) or 'no batch line in it'}); log "
            "a stretch in which the same requests decode (--decode-log-interval 1 gives every step)"
        )
    warnings = ["decode times are means over the steps between two log lines"]
    if any(np.any(part.profile.prefill_tokens > 0) for part in parts):
        warnings.append(
            "prefill times are wall times between queued prefill batches (input throughput): host time is in them"
        )
    return finish("sglang-log", parts, joinable=True, left_out=left, warnings=warnings)


def _read_run(place: Place, options: RunOptions) -> MeasuredRun:
    source, log = place.text(), _Log()
    ranks: dict[str, SeriesBuilder] = {}
    for line in log.lines(source):
        decode = line.kind == "Decode"
        running = line.get(b"#running-req") + (0.0 if decode else line.get(b"#new-seq"))
        rates = (0.0, line.get(_GEN)) if decode else (line.get(_INPUT), float("nan"))
        ranks.setdefault(line.rank, SeriesBuilder(0.0)).add(
            line.t_s, running, line.get(b"#queue-req"), line.get(*_USAGE), *rates
        )
    if not ranks:
        told = "; ".join(f"{count} {reason}" for reason, count in log.left.items()) or "no batch line in it"
        raise InputError(f"{source.name} holds no complete batch line ({told})")
    capacity = _CAPACITY.search(source.head)
    warnings = [line for builder in ranks.values() for line in builder.warnings()]
    warnings.append(
        "reports come with batches, not with a clock: prefill lines have no output throughput, decode lines no input"
    )
    return make_run(
        source.name,
        "sglang-log",
        None,
        series=[builder.series(rank) for rank, builder in ranks.items()],
        kv_capacity_tokens=float(capacity.group(1)) if capacity else None,
        conditions=Conditions(source=source.name),
        skipped=list(log.left.items()),
        warnings=warnings,
    )


def _sniff(place: Place) -> float:
    return 6.0 if place.marked(_SNIFF) else 0.0


PROFILE_READERS = (
    ProfileReader(
        "sglang-log", "SGLang server log (text; steps out of gen and input throughput)", _sniff, _read_profile
    ),
)
RUN_READERS = (RunReader("sglang-log", "SGLang server log (text; paths over time)", _sniff, _read_run),)

"""What the page shows of an answer: the figure as SVG, the figures that matter, the flags, the same as a command.

Plain HTML: the page's framework does not decide how an answer looks, and a test reads it without a browser.
"""

from __future__ import annotations

__all__ = ["Memory", "commands", "show"]

import re
import shlex
from dataclasses import dataclass
from html import escape
from io import StringIO
from threading import Lock
from typing import Any

from tileq.exploring import Explored, Settings, explore
from tileq.words import number, percent, seconds
from tileq_theory.errors import TileqError

# matplotlib's style is the process's, and each open page answers in a thread of its own
_ONE_AT_A_TIME = Lock()


@dataclass(slots=True)
class Memory:
    """The answers of one open page: the last one, and the one before it, outlined under the figure."""

    last: Explored | None = None
    earlier: Explored | None = None

    def keep(self, answer: Explored) -> None:
        """Take a new answer; the same settings once more change nothing."""
        if self.last is None or self.last.settings != answer.settings:
            self.earlier, self.last = self.last, answer


def show(settings: Settings, memory: Memory) -> str:
    """Return the HTML for what the controls say: the answer, or one line where there is none.

    Examples
    --------
    >>> html = show(Settings(gpu="rtx-4090", rates=(2.0, 0.8), tbt_s=0.03), Memory())
    >>> "<svg" in html and "TBT limit binds" in html
    True
    >>> "does not fit" in show(Settings(gpu="t4", model="llama-3.1-70b", dtype="fp16"), Memory())
    True
    """
    try:
        with _ONE_AT_A_TIME:
            answer = explore(settings)
            memory.keep(answer)
            picture = _svg(answer.figure(memory.earlier))
    except TileqError as error:
        return (
            f'<div class="tileq-answer"><p class="tileq-none" id="tileq-none">No answer: {escape(str(error))}</p></div>'
        )
    verdict = "inside" if answer.inside else "outside"
    return (
        f'<div class="tileq-answer" id="tileq-answer" data-load="{answer.load:.6g}" data-binding="{answer.binding}">'
        f"{_cards(answer)}"
        f'<div class="tileq-figure {verdict}" id="tileq-figure">{picture}</div>'
        f'<p id="tileq-reason"><b>{escape(_binds(answer))}.</b> {escape(answer.reason)}</p>'
        f"{_flags(answer)}{_warnings(answer)}</div>"
    )


def commands(settings: Settings) -> list[str]:
    """Return the commands that give the page's answer in a terminal: the region with its point, and the plan.

    Examples
    --------
    >>> print(commands(Settings(classes=("a=512:64", "b=64:512"), rates=(2.0, 0.5), tbt_s=0.05))[0])
    tileq region --gpu h100-sxm --model llama-3.1-8b --tbt 0.05 --class a=512:64 --class b=64:512 --at 2,0.5
    """
    s = settings
    words = ["--gpu", s.gpu, "--model", s.model]
    for flag, value, usual in (
        ("--tp", s.tp, 1),
        ("--nodes", s.nodes, 1),
        ("--dtype", s.dtype, "bf16"),
        ("--kv-dtype", s.kv_dtype, None),
        ("--memory-utilisation", s.memory_utilisation, 0.9),
        ("--tbt", s.tbt_s, None),
        ("--max-num-seqs", s.max_num_seqs, None),
        ("--max-tokens", s.max_tokens, 8192),
    ):
        if value != usual:
            words += [flag, f"{value:.12g}" if isinstance(value, float) else str(value)]
    rates = [f"{rate:.12g}" for rate in s.rates or ()]
    alone = [word for line in s.classes for word in ("--class", line)]
    shares = rates if any(s.rates or ()) else ["1"] * len(rates)
    mixed = [word for line, share in zip(s.classes, shares, strict=False) for word in ("--class", f"{line}@{share}")]
    wanted = ["--ttft", f"{s.ttft_s:.12g}"] if s.ttft_s is not None else []
    written = ["--engine", s.engine] if s.engine != "vllm" else []
    region = ["tileq", "region", *words, *alone, *(["--at", ",".join(rates)] if rates else [])]
    return [shlex.join(region), shlex.join(["tileq", "plan", *words, *(mixed or alone), *wanted, *written])]


# ---------------------------------------------------------------------- its parts


def _cards(answer: Explored) -> str:
    tile = answer.plan.tile
    low, high = tile.capacity.error_band
    total = sum(answer.rates)
    reach = "-" if answer.headroom is None else number(total * answer.headroom)
    cards = [
        (
            "load",
            "load",
            percent(answer.load),
            "inside: no bound rules it out" if answer.inside else "outside: no policy serves it",
        ),
        ("capacity", "capacity at this mix", f"{reach}/s", f"{number(low)} to {number(high)} by the error band"),
        (
            "tile",
            "tile",
            f"{number(round(tile.prefill_tokens))} + {number(round(tile.decode_tokens))}",
            f"prefill + decode tokens, {seconds(tile.iteration_s)}",
        ),
        ("budget", "token budget", number(answer.plan.token_budget), f"{number(tile.max_num_seqs)} sequences at most"),
        ("first", "first token", seconds(tile.ttft_floor_s), _first(answer)),
    ]
    inner = "".join(
        f'<div class="tileq-card"><span>{escape(label)}</span><b id="tileq-{key}">{escape(value)}</b>'
        f"<small>{escape(note)}</small></div>"
        for key, label, value, note in cards
    )
    return f'<div class="tileq-cards {"inside" if answer.inside else "outside"}">{inner}</div>'


def _first(answer: Explored) -> str:
    alone = "a mean prompt, nobody else there"
    limit = answer.settings.ttft_s  # one that cannot be kept has no answer at all
    return alone if limit is None else f"{alone}: within {seconds(limit)}"


def _binds(answer: Explored) -> str:
    from tileq.plots.figure import binds

    words = binds(answer.binding)
    return f"{words[0].upper()}{words[1:]}"


def _flags(answer: Explored) -> str:
    flags = answer.plan.flags
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(flags.reasons[name])}</td></tr>"
        for name in flags.flags
        if flags.reasons[name] != "as planned for"
    )
    same = "\n".join(commands(answer.settings))
    return (
        f'<h3>Set on {escape(flags.engine)}</h3><pre id="tileq-flags">{escape(flags.command())}</pre>'
        f"<table>{rows}</table>"
        f'<h3>The same in a terminal</h3><pre id="tileq-commands">{escape(same)}</pre>'
    )


def _warnings(answer: Explored) -> str:
    notes = "".join(f"<li>{escape(text)}</li>" for text in answer.warnings())
    return f'<ul class="tileq-notes">{notes}</ul>' if notes else ""


def _svg(figure: Any) -> str:
    """Return the figure as an SVG element that scales with the page; ids stay the same for the same drawing."""
    from tileq.plots.figure import FORMATS, in_style

    text = StringIO()
    with in_style():
        figure.savefig(text, format="svg", **FORMATS[".svg"])
    element = text.getvalue()
    element = element[element.index("<svg") :]
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%" role="img"', element, count=1)

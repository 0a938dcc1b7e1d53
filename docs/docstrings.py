"""Sphinx extension: docstrings are written to be read in a terminal; this makes the same text mean the same on a page.

An indented block in the prose is a formula or a table and keeps its lines; a bar or an asterisk is itself, not markup.
"""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"(``.+?``|`[^`]+`)")
_RULE = re.compile(r"^\s*-{3,}\s*$")
_EMPHASIS = re.compile(r"((?<![\w*])\*{1,2}[^*\s](?:[^*]*[^*\s])?\*{1,2}(?![\w*]))")
_ITEM = re.compile(r"^\s*([*-]|\d+\.|\(\d+\))\s")


def setup(app: Any) -> dict[str, bool]:
    """Run before napoleon reads the sections."""
    app.connect("autodoc-process-docstring", process, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def process(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Rewrite `lines` in place."""
    end = next((i - 1 for i, line in enumerate(lines) if i and _RULE.match(line)), len(lines))
    lines[:] = [*_prose(lines[:end]), *map(_escaped, lines[end:])]


def _prose(lines: list[str]) -> list[str]:
    out: list[str] = []
    in_block = False
    item = False
    for i, line in enumerate(lines):
        indented = line.startswith("    ")
        if line.strip() and not indented:
            in_block, item = False, bool(_ITEM.match(line)) or (item and line.startswith(" "))
        elif indented and not in_block and not item and i and not lines[i - 1].strip():
            out += ["::", ""]
            in_block = True
        out.append(line if in_block else _escaped(line))
    return out


def _escaped(line: str) -> str:
    if line.lstrip().startswith((">>>", "...")):
        return line
    pieces = _CODE.split(line)
    return "".join(p if p.startswith("`") else _marked(p) for p in pieces)


def _marked(text: str) -> str:
    text = text.replace("|", r"\|")
    pieces = _EMPHASIS.split(text)
    return "".join(p if _EMPHASIS.fullmatch(p) else _literal(p, first=not n) for n, p in enumerate(pieces))


def _literal(text: str, first: bool) -> str:
    item = _ITEM.match(text) if first else None
    start = item.end() if item else 0
    return text[:start] + re.sub(r"(\w_)(?=\W|$)", r"\1\\", text[start:].replace("*", r"\*")).replace("_\\", r"\_")

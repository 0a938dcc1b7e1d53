"""Sphinx extension: formulas as MathML, which browsers typeset themselves, so that the pages need no network."""

from __future__ import annotations

from typing import Any


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer; `html_math_renderer = "mathml"` chooses it."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def inline(translator: Any, node: Any) -> None:
    """Write a formula within a line."""
    translator.body.append(_mathml(node.astext(), "inline"))
    _skip()


def block(translator: Any, node: Any) -> None:
    """Write a formula on a line of its own, with its number if it has one."""
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    text = _mathml(node.astext(), "block")
    translator.body.append(f'<div class="math" style="overflow-x:auto">{number}{text}</div>')
    _skip()


def _mathml(text: str, display: str) -> str:
    from latex2mathml.converter import convert

    return convert(text, display=display)


def _skip() -> None:
    from docutils import nodes

    raise nodes.SkipNode

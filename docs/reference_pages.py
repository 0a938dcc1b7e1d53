"""Write the reference: one page for each part of each package, and the theorems with their formulas.

The pages are made of docstrings and of the closed forms' own expressions: they cannot say anything else than the code.
"""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Iterator
from pathlib import Path

PACKAGES = {
    "tileq": "the face: plans, regions, simulations, calibration",
    "tileq_theory": "models, programs and closed forms",
    "tileq_engine": "requests in motion",
    "tileq_profiling": "what others recorded, and what this machine does",
}
NOT_SHOWN = ("__main__", "tileq.cli", "tileq.explorer.page")  # the last has cells, and no names
# they build on vLLM's classes when they are imported; what a user sets is in `tileq_engine.vllm.settings`
IN_VLLM = tuple(
    f"tileq_engine.vllm.{name}"
    for name in ("classes", "lean", "lean_known", "scheduler", "stat_logger", "waiting_queue")
)


def write(folder: Path, root: Path) -> None:
    """Write the pages into `folder`/generated, only where they changed, so that a second build is quick."""
    target = folder / "generated"
    target.mkdir(exist_ok=True)
    pages = {f"{part.replace('.', '-')}.md": text for part, text in parts()}
    pages["theorems.md"] = theorems()
    for stale in {p.name for p in target.glob("*.md")} - set(pages):
        (target / stale).unlink()
    for name, text in pages.items():
        path = target / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def parts() -> Iterator[tuple[str, str]]:
    """Yield (part, page): a part is a package of the second level, or the loose modules of a package."""
    for package, title in PACKAGES.items():
        groups: dict[str, list[str]] = {}
        for module in modules(package):
            pieces = module.split(".")
            part = ".".join(pieces[:2]) if len(pieces) > 2 or is_package(module) else package
            groups.setdefault(part, []).append(module)
        for part, members in sorted(groups.items()):
            heading = f"# `{part}`" + (f": {title}" if part == package else "")
            yield part, "\n\n".join([heading, *(section(m) for m in members)]) + "\n"


def modules(package: str) -> list[str]:
    """Return the public modules of a package, itself included, without those whose every name is private."""
    found = importlib.import_module(package)
    hidden = NOT_SHOWN if importlib.util.find_spec("vllm") else NOT_SHOWN + IN_VLLM
    names = [package, *(m.name for m in pkgutil.walk_packages(found.__path__, package + "."))]
    return [n for n in names if not n.startswith(hidden) and not any(p.startswith("_") for p in n.split("."))]


def is_package(module: str) -> bool:
    """Return whether a module is a package (its names live in its files); the module itself is not imported."""
    found = importlib.util.find_spec(module)
    return found is not None and found.submodule_search_locations is not None


def section(module: str) -> str:
    """Return the directive for one module; a package shows its text only, its names being shown where they live."""
    members = "" if is_package(module) else ":members:\n"
    return f"## `{module}`\n\n```{{eval-rst}}\n.. automodule:: {module}\n   {members}```"


def theorems() -> str:
    """Return the numbered list of closed forms: formula, symbols with units, conditions, source."""
    from tileq_theory.closed_forms import closed_form, closed_forms

    lines = [
        "# Theorems and closed forms, numbered",
        "",
        "Each is a `ClosedForm`: `tq.closed_form(name)` gives its expression, value, derivatives and elasticities.",
        "",
    ]
    for number, name in enumerate(closed_forms(), start=1):
        form = closed_form(name)
        lines += [
            f"## {number}. {form.title[0].upper()}{form.title[1:]}",
            "",
            f"`{name}`, in {form.unit or 'no unit'}. {form.source}.",
            "",
        ]
        lines += ["$$", form.latex(), "$$", ""]
        lines += [f"* ${q.latex}$ (`{q.name}`): {q.meaning}{f', {q.unit}' if q.unit else ''}" for q in form.quantities]
        lines += [*(f"* holds where `{c.text}`" for c in form.conditions), ""]
    return "\n".join(lines)

"""What README and docs print runs as printed: commands and Python alike, from an empty folder."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if "generated" not in p.parts),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


def blocks(path: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(path.read_text(encoding="utf-8")) if kind == language]


def commands(path: Path) -> list[str]:
    """Return the lines of `sh` blocks that call tileq, continued lines joined."""
    text = "\n".join(blocks(path, "sh")).replace("\\\n", " ")
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line.startswith("tileq ")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_run_as_printed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tileq.cli.run import run

    monkeypatch.chdir(tmp_path)
    for text in blocks(path, "toml"):  # a block that begins with "# name.toml" is that file
        if named := re.match(r"# (\w+\.toml)\n", text):
            (tmp_path / named[1]).write_text(text, encoding="utf-8")
    for line in commands(path):
        before, _, target = line.partition(" > ")
        status = run(shlex.split(before)[1:])
        printed = capsys.readouterr()
        if line.startswith("tileq explore") and find_spec("marimo") is None:
            assert status == 2 and "pip install 'tileq[explore]'" in printed.err
            continue
        assert status == 0, f"{line}: {printed.err}"
        assert printed.out or "--plot" in line, line
        if target:
            (tmp_path / target.strip()).write_text(printed.out, encoding="utf-8")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_python_runs_as_printed(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One document's blocks share their names; a line `x  # -> text` must print as the comment says."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "document"}
    for number, block in enumerate(blocks(path, "python")):
        exec(compile(block, f"{path.name}, python block {number + 1}", "exec"), scope)


def test_the_documents_show_commands_and_python() -> None:
    """A change of layout must not make this file test nothing."""
    assert any(commands(path) for path in DOCUMENTS)
    assert any(blocks(path, "python") for path in DOCUMENTS)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_files_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_readme_prints_what_the_command_prints() -> None:
    """`python docs/refresh.py` brings it up to date."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
    assert spec is not None and spec.loader is not None
    refresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(refresh)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"$ {refresh.SAMPLE}\n{refresh.printed(refresh.SAMPLE)}\n```" in readme
    assert refresh.policies() in readme
    assert all((ROOT / "docs" / "pictures" / name).is_file() for name in refresh.PICTURES)

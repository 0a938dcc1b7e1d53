"""Every page of help fits a screen, gives an example that can be read, and says what the documents say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cyclopts import App

from tileq.cli import help_screen
from tileq.cli.app import app
from tileq.cli.run import run

DOCS = Path(__file__).resolve().parents[2] / "docs"
Capture = pytest.CaptureFixture[str]
OTHERS = {"--save-detailed"}  # an option of vllm bench serve, which docs/command.md names


def commands(at: App = app, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], App]:
    """Return every command by its words; the application itself is ()."""
    found = {path: at}
    for name in at:
        if not name.startswith("-"):
            found |= commands(at[name], (*path, name))
    return found


COMMANDS = commands()
LEAVES = {path: each for path, each in COMMANDS.items() if each.default_command is not None}
ids = [" ".join(path) or "tileq" for path in COMMANDS]


def options(each: App) -> set[str]:
    """Return the options that a command's parser knows."""
    arguments = each.assemble_argument_collection() if each.default_command is not None else ()
    return {name for argument in arguments for name in argument.names if name.startswith("--")}


def page(path: tuple[str, ...], capsys: Capture, flag: str = "--help") -> list[str]:
    assert run([*path, flag]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("path", COMMANDS, ids=ids)
def test_a_page_fits_a_screen_and_gives_an_example(
    path: tuple[str, ...], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(help_screen.SCREEN_COLUMNS))
    lines = page(path, capsys)
    remedy = f"shorten its options' texts, or add the rarest to RARE of {help_screen.__name__}"
    assert len(lines) <= help_screen.SCREEN_LINES, f"{len(lines)} lines: {remedy}"
    assert max(map(len, lines)) <= help_screen.SCREEN_COLUMNS
    (example,) = [line for line in lines if line.startswith("Example: tileq ")]
    words = shlex.split(example.removeprefix("Example: tileq ").split("   ")[0])
    assert tuple(words[: len(path)]) == path
    app.parse_args(words, print_error=False, exit_on_error=False)  # raises what the command line would


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_all_shows_every_option_and_help_says_how_many_it_left_out(
    path: tuple[str, ...], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(help_screen.SCREEN_COLUMNS))
    known = options(LEAVES[path])
    whole, short = ("\n".join(page(path, capsys, flag)) for flag in (help_screen.ALL, "--help"))
    shown = {text: set(re.findall(r"(?<=\s)--[a-z][a-z0-9-]*", text)) for text in (whole, short)}
    assert known <= shown[whole]
    hidden = known - shown[short]
    said = re.search(r"^(\d+) rarer options: --help-all$", short, flags=re.MULTILINE)
    assert (len(hidden) == int(said[1])) if said else not hidden
    assert hidden <= help_screen.RARE


def test_a_page_longer_than_a_screen_leaves_the_rare_out(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    full = page(("plan",), capsys)
    monkeypatch.setattr(help_screen, "SCREEN_LINES", len(full) - 1)
    short = page(("plan",), capsys)
    left_out = len(help_screen.RARE & options(COMMANDS[("plan",)]))
    assert left_out > 1 and short[-1] == f"{left_out} rarer options: --help-all"
    assert len(short) == len(full) - left_out + 1
    assert page(("plan",), capsys, "--help-all") == full


def test_help_of_what_is_no_command_is_an_error(capsys: Capture) -> None:
    assert run(["plam", "--help"]) == 2
    assert "Did you mean" in capsys.readouterr().err


# ---------------------------------------------------------------------- the documents


def sections() -> dict[str, str]:
    """Return the parts of docs/command.md by the command they are about."""
    text = (DOCS / "command.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^## `tileq ([a-z]+)`\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE))


def test_every_command_has_its_part_of_the_contract() -> None:
    assert set(sections()) == {path[0] for path in COMMANDS if path}


@pytest.mark.parametrize("name", sorted(sections()))
def test_options_in_the_contract_are_options_of_the_command(name: str) -> None:
    """What a part names is an option of that command, or of another that the same sentence names."""
    own = set().union(*(options(each) for path, each in COMMANDS.items() if path[:1] == (name,)))
    for sentence in re.split(r"(?<=[.:;|])\s", sections()[name]):
        about = [own, *(options(COMMANDS[path]) for path in LEAVES if f"tileq {' '.join(path)}" in sentence)]
        if "every command" in sentence:
            about += [options(each) for each in LEAVES.values()]
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", sentence)) - OTHERS
        assert named <= set().union(*about), f"{sentence!r} names {named - set().union(*about)}"


@pytest.mark.parametrize(
    "path", sorted(p for p in DOCS.rglob("*.md") if "generated" not in p.parts), ids=lambda p: p.name
)
def test_options_anywhere_in_the_documents_exist(path: Path) -> None:
    """In lines that call tileq; what is printed of engines' flags is not ours."""
    known = set().union(*(options(each) for each in LEAVES.values())) | {"--help", "--help-all", "--version"}
    for line in re.findall(r"^.*\btileq [a-z].*$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        for call in re.findall(r"\btileq (?!-)[a-z][^`|]*", line):
            assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", call)) <= known, call

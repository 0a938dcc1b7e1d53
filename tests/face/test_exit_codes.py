"""The command's frame: exit status, one line on stderr, nothing on stdout when there is no answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tileq.cli.run import run
from tileq_theory.errors import InputError, SolveError, TileqError

Capture = pytest.CaptureFixture[str]


def complaint(capsys: Capture) -> str:
    """Return the one line of stderr; stdout must be empty."""
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert len(lines) == 1, printed.err
    return lines[0]


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def plan(**_: object) -> None:
        raise error

    monkeypatch.setattr("tileq.planning.plan", plan)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan", "--rat", "3"], "--rat. Did you mean --rate?"),
        (["plam"], 'Unknown command "plam". Did you mean "plan"?'),
        (["plan", "--rate", "x"], "--rate: 'x' is not a number"),
        (["plan", "--rate", "nan"], "--rate: 'nan' is not a finite number"),
        (["plan", "--tbt", "inf"], "--tbt: 'inf' is not a finite number"),
        (["plan", "--tp", "1.5"], "--tp: '1.5' is not a whole number"),
        (["plan", "--max-tokens", "1e400"], "is not a finite number"),
        (["plan", "--rate"], "--rate requires an argument"),
        (["plan", "extra"], "'extra'"),
        (["catalog", "gpu"], 'Did you mean "gpus"?'),
        (["catalog"], "requires an argument"),
        (["--json"], "--json"),
        (["plan", "--json=maybe"], "--json"),
    ],
)
def test_a_command_line_that_cannot_be_read(arguments: list[str], says: str, capsys: Capture) -> None:
    assert run(arguments) == 2
    line = complaint(capsys)
    assert line.startswith("tileq: error: ")
    assert says in line


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InputError("rate is -1; expected more"), 2, "tileq: error: rate is -1; expected more"),
        (SolveError("the solver stopped;\n  scale the input"), 1, "tileq: error: the solver stopped; scale the input"),
        (TileqError("no answer"), 1, "tileq: error: no answer"),
        (ZeroDivisionError(), 1, "tileq: failed: ZeroDivisionError (TILEQ_DEBUG=1 shows where)"),
        (KeyError("x"), 1, "tileq: failed: KeyError: 'x' (TILEQ_DEBUG=1 shows where)"),
        (KeyboardInterrupt(), 130, "tileq: interrupted"),
    ],
)
def test_each_kind_of_end_has_its_status(
    error: BaseException, status: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.delenv("TILEQ_DEBUG", raising=False)
    failing(monkeypatch, error)
    assert run(["plan", "--json"]) == status
    assert complaint(capsys) == line


def test_the_traceback_is_there_for_who_asks(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("TILEQ_DEBUG", "1")
    failing(monkeypatch, ZeroDivisionError("here"))
    assert run(["plan"]) == 1
    printed = capsys.readouterr().err
    assert "Traceback" in printed and printed.splitlines()[-1] == "tileq: failed: ZeroDivisionError: here"


Tileq = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def tileq() -> Tileq:
    """Call the command as a user does, in a process of its own."""

    def call(*arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "80"}
        command = [sys.executable, "-m", "tileq", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, **settings)  # type: ignore[call-overload,no-any-return]

    return call


def test_the_entry_point_passes_the_status_on(tileq: Tileq) -> None:
    done = tileq("plan", "--rate", "x", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_help_needs_no_heavy_import() -> None:
    """`tileq --help` answers at once because nothing heavy is loaded; that is what is checked, not seconds."""
    heavy = ("numpy", "scipy", "cvxpy", "matplotlib", "numba", "sympy", "pyarrow", "networkx", "tileq_theory")
    code = (
        "import sys; from tileq.cli.run import run; run(['--help']); run(['plan', '--help']);"
        f"sys.exit(','.join(m for m in {heavy!r} if m in sys.modules) or 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["plan", "region", "catalog"])
def test_the_help_of_each_command_fits_a_screen_and_gives_an_example(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(f"Example: tileq {command}") for line in lines)


def test_a_reader_that_leaves_early_is_no_failure(tmp_path: Path) -> None:
    """`tileq ... | true`: no traceback, no noise."""
    errors = tmp_path / "stderr"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = f'for i in 1 2 3; do "{sys.executable}" -m tileq catalog gpus 2>>"{errors}" | true; done'
    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], env=environment, check=False)
    assert done.returncode == 0
    assert errors.read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        ("plan --rate", "tileq plan"),
        ("analyze latency --rate", "tileq analyze latency"),
        ("analyze nothing", "tileq analyze"),
        ("nothing", "tileq"),
    ],
)
def test_a_wrong_call_is_sent_to_the_page_that_answers_it(arguments: str, page: str, capsys: Capture) -> None:
    assert run(arguments.split()) == 2
    assert complaint(capsys).endswith(f"({page} --help)")

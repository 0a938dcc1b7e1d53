"""The house rules, as tests: one command says whether everything holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def readme_command(name: str) -> str:
    """Return the block of README.md after the mark `command: name`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(rf"<!-- command: {name} -->\n```sh\n(.*?)\n```", text, flags=re.DOTALL)
    assert len(found) == 1, f"README.md has {len(found)} blocks marked 'command: {name}'"
    return str(found[0])


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "format", "--check", "."),
        ("ruff", "check", "."),
        ("mypy",),
    ],
    ids=" ".join,
)
def test_the_source_is_clean(command: tuple[str, ...]) -> None:
    done = run(sys.executable, "-m", *command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_arrows_between_packages_run_one_way() -> None:
    done = run(sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])")
    assert done.returncode == 0, done.stdout + done.stderr


def test_ci_runs_the_command_of_the_readme(tmp_path: Path) -> None:
    """The script hands the block over unchanged but for the folder of the environment."""
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "python3").write_text('#!/bin/sh\necho "ran: python3 $*"\ncase "$*" in -m*) exit 7;; esac\n')
    (fake / "python3").chmod(0o755)
    environment = {**os.environ, "PATH": f"{fake}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", str(ROOT / ".ci" / "run")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    printed = next(line[2:] for line in done.stdout.splitlines() if line.startswith("+ "))
    folder = re.search(r"(\S+)/venv\b", printed)
    assert folder is not None and folder[1].startswith(str(tmp_path))
    assert printed.replace(f"{folder[1]}/venv", ".venv") == readme_command("test")
    assert done.returncode == 7, "a failing command must fail the run"
    assert not Path(folder[1]).exists(), "the environment is removed afterwards"


def test_the_two_commands_make_their_own_environment_and_install() -> None:
    for name in ("plan", "test"):
        command = readme_command(name)
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")
    assert readme_command("plan").endswith(".venv/bin/tileq plan")
    assert readme_command("test").endswith(".venv/bin/python -m pytest")


def test_nothing_installs_torch_unasked() -> None:
    """Only the extras of their names bring torch and vLLM: an unpinned torch is gigabytes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {"dependencies": project["dependencies"], **project["optional-dependencies"]}
    bringing = {name for name, needs in asked.items() if any(re.match(r"torch\b|vllm", need) for need in needs)}
    assert bringing <= {"torch", "vllm"}


def test_versions_agree() -> None:
    import tileq

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert project["version"] == tileq.__version__
    assert f"\nversion: {tileq.__version__}\n" in citation


def test_source_roots_hold_no_loose_module() -> None:
    """`profiling` would hide the standard library's module of that name from Python 3.15 on."""
    for name in ("theory", "engine", "profiling"):
        assert not list((ROOT / name).glob("*.py"))
        assert (ROOT / name / "README.md").is_file()

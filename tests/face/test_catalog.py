"""What the catalogues list can be named, and the public names of the package exist."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import tileq as tq
from tileq.catalogs import KINDS
from tileq.cli.run import run


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_is_printed(kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["catalog", kind, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == tq.catalog(kind).to_dict()
    names = [row["name"] for row in document["rows"]]
    assert names and len(set(names)) == len(names)
    assert run(["catalog", kind]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert f"{len(names)} {kind}" in text


def test_what_is_listed_can_be_named() -> None:
    for row in tq.catalog("gpus").rows:
        assert tq.load_gpu(row["name"]).name == row["name"]
    for row in tq.catalog("models").rows:
        assert tq.load_model(row["name"]).name == row["name"]
    for row in tq.catalog("workloads").rows:
        assert tq.plan(workload=row["name"]).rate_per_s > 0
    for row in tq.catalog("closed-forms").rows:
        assert tq.closed_form(row["name"]).name == row["name"]
    for row in tq.catalog("policies").rows:
        bound = row["bound"]  # not every policy has a program over the batches that it forms
        assert bound is None or callable(getattr(tq, bound.removeprefix("tq.")))
    for row in tq.catalog("calibrations").rows:
        assert tq.named_calibration(row["name"]).name == row["name"]


def test_an_unknown_list_is_named_with_its_neighbours() -> None:
    with pytest.raises(tq.InputError, match="did you mean gpus"):
        tq.catalog("gpu")


def test_every_public_name_is_there() -> None:
    for name in tq.__all__:
        assert getattr(tq, name) is not None
    assert set(tq.__all__) <= set(dir(tq))
    with pytest.raises(AttributeError, match="no attribute 'plam'"):
        tq.plam  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, tileq; sys.exit([m for m in sys.modules if m.startswith('tileq_')] or 0)"
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"], check=False)
    assert done.returncode == 0

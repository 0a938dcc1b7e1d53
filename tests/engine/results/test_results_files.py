"""Saved runs: lossless, atomic, and clear about damaged or foreign files; CSV and Parquet exports."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileq_engine.run import PS_PER_S, GapGroup, Run, Slo
from tileq_engine.run_header import SCHEMA_FILE, RunHeader
from tileq_engine.run_io import atomic_write, identical_runs
from tileq_theory.errors import InputError

RunMaker = Callable[..., Run]


@pytest.fixture(scope="module")
def run(mm1: RunMaker) -> Run:
    return mm1(0.8, 120, 5, tiers=2, end_s=140.0, slo=(Slo(ttft_s=2.0), Slo()))


def test_saving_and_loading_loses_nothing(run: Run, tmp_path: Path) -> None:
    histogram = run.gaps[0].gaps.to_histogram()
    changed = Run(
        run.requests,
        run.samples,
        (replace(run.gaps[0], gaps=histogram), run.gaps[1]),
        {"busy_ps": 2**70, "iterations": 3},
        replace(
            run.info, gap_window_ps=(1, 2**60), provenance={"a": [1, None, {"b": 0.1}]}, seed=2**63, warnings=("w",)
        ),
    )
    back = Run.load(changed.save(tmp_path / "run.npz"))
    assert identical_runs(back, changed)
    assert back.info == changed.info and dict(back.counters) == dict(changed.counters)
    assert back.to_dict() == changed.to_dict()
    assert not identical_runs(back, run)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.npz"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damaged_byte_is_found_or_harmless(run: Run, tmp_path: Path, data: st.DataObject) -> None:
    whole = run.save(tmp_path / "whole.npz").read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] ^= data.draw(st.integers(1, 255))
    (tmp_path / "damaged.npz").write_bytes(damaged)
    try:
        back = Run.load(tmp_path / "damaged.npz")
    except InputError as error:
        assert "damaged.npz" in str(error) and "\n" not in str(error)
    else:
        assert identical_runs(back, run)  # a byte of the zip's own dates and flags


def test_a_member_that_claims_to_be_encrypted_is_damage(run: Run, tmp_path: Path) -> None:
    damaged = bytearray(run.save(tmp_path / "whole.npz").read_bytes())
    damaged[damaged.index(b"PK\x01\x02") + 8] ^= 1
    (tmp_path / "flag.npz").write_bytes(damaged)
    with pytest.raises(InputError, match=r"flag\.npz: cannot be read"):
        Run.load(tmp_path / "flag.npz")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_refused(run: Run, tmp_path: Path, share: float) -> None:
    whole = run.save(tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match=r"cut\.npz"):
        Run.load(tmp_path / "cut.npz")


def test_the_same_run_is_the_same_bytes(run: Run, tmp_path: Path) -> None:
    assert run.save(tmp_path / "one.npz").read_bytes() == run.save(tmp_path / "two.npz").read_bytes()


def test_foreign_files_are_refused(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "pickle.npz", header=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    for name in ("other.npz", "array.npy", "text.npz", "pickle.npz"):
        with pytest.raises(InputError, match=name.replace(".", r"\.")):
            Run.load(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        Run.load(tmp_path / "absent.npz")


def rewritten(run: Run, folder: Path, change: Callable[[dict], None]) -> Path:
    """Save `run`, change its header, and return the new file."""
    with np.load(run.save(folder / "source.npz")) as stored:
        arrays = {name: stored[name] for name in stored.files}
    header = json.loads(arrays["header"].tobytes())
    change(header)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(folder / "changed.npz", **arrays)
    return folder / "changed.npz"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.update(schema_version=99), "schema_version is 99"),
        (lambda h: h["info"].update(end_ps=-5), r"info\.end_ps"),
        (lambda h: h["info"].pop("policy"), r"info\.policy"),
        (lambda h: h["gaps"][0].update(kind="list"), r"gaps\.0\.kind"),
        (lambda h: h["info"].update(tier_names=["one"]), "tier"),
        (lambda h: h.update(extra=1), "extra"),
    ],
)
def test_a_bad_header_names_its_entry(run: Run, tmp_path: Path, change: Callable[[dict], None], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Run.load(rewritten(run, tmp_path, change))


def test_the_schema_in_the_repository_is_the_headers() -> None:
    stored = json.loads(SCHEMA_FILE.read_text())
    assert stored == RunHeader.model_json_schema(), "write RunHeader.model_json_schema() to run_header.schema.json"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_text("old")

    def fail(part: Path) -> None:
        part.write_text("half")
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError):
        atomic_write(target, fail)
    assert target.read_text() == "old" and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(InputError, match="does not exist"):
        atomic_write(tmp_path / "no" / "x", fail)


def test_facts_that_are_not_json_are_refused_before_writing(run: Run, tmp_path: Path) -> None:
    bad = Run(run.requests, run.samples, run.gaps, {}, replace(run.info, provenance={"x": object()}))
    with pytest.raises(InputError, match="JSON"):
        bad.save(tmp_path / "bad.npz")
    assert not list(tmp_path.iterdir())


def test_csv_and_parquet_hold_the_same_rows(run: Run, tmp_path: Path) -> None:
    from pyarrow import parquet

    with run.to_csv(tmp_path / "requests.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = parquet.read_table(run.to_parquet(tmp_path / "requests.parquet"))
    assert len(rows) == table.num_rows == run.count
    assert rows[0].keys() == set(table.column_names)
    for i in (0, run.count // 2, run.count - 1):
        arrow = {name: table.column(name)[i].as_py() for name in table.column_names}
        for name, value in arrow.items():
            assert rows[i][name] == ("" if value is None else rows[i][name])
        assert int(rows[i]["arrival_ps"]) == run.requests["arrival_ps"][i] == arrow["arrival_ps"]
        finish = int(run.requests["finish_ps"][i])
        assert arrow["finish_ps"] == (finish if finish >= 0 else None)
        if finish >= 0:
            assert float(rows[i]["e2e_s"]) == arrow["e2e_s"] == (finish - arrow["arrival_ps"]) / PS_PER_S
    assert {row["tier"] for row in rows} == {"tier 0", "tier 1"}
    assert json.loads(table.schema.metadata[b"tileq_run"])["policy"] == "fcfs"


def test_a_gap_group_keeps_its_place(run: Run) -> None:
    assert [(g.class_index, g.tier) for g in run.gaps] == [(0, 0), (0, 1)]
    assert isinstance(run.gaps[0], GapGroup)


@pytest.mark.parametrize("target", ["run.npz", "run.csv", "run.parquet"])
def test_a_place_that_cannot_be_written(mm1: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """One line that names the file; a full disk half way leaves neither the file nor a part of it."""
    run = mm1(0.5, 20, 1)
    write = {"npz": run.save, "csv": run.to_csv, "parquet": run.to_parquet}[target.rpartition(".")[2]]
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="it is a folder; expected the name of a file"):
        write(tmp_path / "folder")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match=rf"cannot write .*{target}: No space left on device"):
        write(tmp_path / target)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]

"""Named workloads: what ships, how far it is from the traces, and that the script makes the shipped files."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.arrivals import GammaArrivals, OnOff, Poisson, TraceArrivals
from tileq_theory.arrivals.burst_fit import index_of_dispersion
from tileq_theory.errors import InputError
from tileq_theory.lengths import Pairs
from tileq_theory.workloads import (
    fit_error,
    fit_joint_table,
    named_workload,
    workload_facts,
    workload_names,
)

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "theory" / "tileq_theory" / "workloads" / "tables"
NAMES = ("chat", "code", "sharegpt", "summarisation")
LARGEST_BYTES = 8000


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit_workloads", ROOT / "tools" / "fit_workloads.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fit_workloads"] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def test_names() -> None:
    assert workload_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_says_where_it_comes_from(name: str) -> None:
    facts = workload_facts(name)
    for key in ("title", "source", "licence", "selection", "rows", "fit"):
        assert facts[key], key
    work = named_workload(name)
    assert work.provenance.kind == "fitted"
    assert facts["source"] == work.provenance.source
    assert any("moments within" in note for note in work.provenance.notes)
    assert (TABLES / f"{name}.toml").stat().st_size < LARGEST_BYTES
    assert work.lengths.longest_context < np.inf


@pytest.mark.parametrize("name", NAMES)
def test_shipped_files_are_what_the_script_makes(name: str, script: ModuleType, data: Path) -> None:
    """Facts to the letter; figures up to the last digit that is written, which linear algebra libraries may round."""
    made = tomllib.loads(script.toml_of(name, script.WORKLOADS[name](data)))
    shipped = tomllib.loads((TABLES / f"{name}.toml").read_text(encoding="utf-8"))
    bins, kept = made["table"].pop("bins"), shipped["table"].pop("bins")
    assert [b["requests"] for b in bins] == [b["requests"] for b in kept]
    for key in ("prompt", "output"):
        for one, other in zip(bins, kept, strict=True):
            assert one[key] == pytest.approx(other[key], rel=1e-3, abs=0.11)
    assert made.pop("fit") == pytest.approx(shipped.pop("fit"), rel=0.02, abs=2e-4)
    arrivals, kept_arrivals = made.pop("arrivals", {}), shipped.pop("arrivals", {})
    assert arrivals.pop("kind", None) == kept_arrivals.pop("kind", None)
    assert arrivals == pytest.approx(kept_arrivals, rel=1e-4)
    assert made == shipped


@pytest.mark.parametrize("name", NAMES)
def test_moments_are_within_one_percent_of_the_trace(name: str, script: ModuleType, data: Path) -> None:
    recorded: Pairs = script.WORKLOADS[name](data).pairs
    law = named_workload(name).lengths
    error = fit_error(law, recorded)
    assert error.worst <= 0.01
    assert max(error.ks_prompt, error.ks_output) <= 0.03
    shipped = workload_facts(name)["fit"]
    assert error.worst == pytest.approx(shipped["worst"], rel=6e-3)  # three digits are written
    for chunk in (64, 1024, 8192):  # sizes that the fit's own figures do not look at
        found, truth = (x.demand(chunk_tokens=chunk, convention="paper").vector() for x in (law, recorded))
        assert found == pytest.approx(truth, rel=0.01)
    assert law.prompt_law.longest == recorded.prompts.max()
    assert law.output_law.longest == recorded.outputs.max()
    assert law.correlation() == pytest.approx(recorded.correlation(), abs=0.02)


def test_code_bursts_are_those_of_the_trace(script: ModuleType, data: Path) -> None:
    """Counts of the code service in windows of 1 s to 60 s are dispersed as the shipped bursts say, within a fifth."""
    trace = TraceArrivals(script.WORKLOADS["code"](data).times_s)
    bursts = named_workload("code").arrivals
    assert isinstance(bursts, OnOff)
    windows = np.array([1.0, 5.0, 10.0, 30.0, 60.0])
    model = index_of_dispersion(bursts.dispersion, 1 / bursts.mean_on_s + 1 / bursts.mean_off_s, windows)
    seen = np.array([trace.count_dispersion(float(w)) for w in windows])
    assert np.abs(np.log(model / seen)).max() < 0.2
    assert bursts.scv**0.5 == pytest.approx(trace.scv**0.5, rel=1e-4)


def test_rates_and_bursts() -> None:
    assert named_workload("chat").arrivals == GammaArrivals(5.53014, 1.09417)
    assert named_workload("chat", "poisson").arrivals == Poisson(5.53014)
    code = named_workload("code")
    assert isinstance(code.arrivals, OnOff)
    assert code.rate_per_s == pytest.approx(2.5664, rel=1e-5)
    assert code.arrivals.scv**0.5 == pytest.approx(13.15, rel=1e-3)
    gamma = named_workload("code", "gamma").arrivals
    assert isinstance(gamma, GammaArrivals)
    assert gamma.cv == pytest.approx(13.1513)
    assert named_workload("sharegpt").arrivals is None
    assert named_workload("summarisation").rate_per_s == pytest.approx(1.78004)


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("chatt", None, "did you mean chat"),
        ("sumarization", None, "did you mean summarisation"),
        ("zzz", None, "known workloads: chat, code, sharegpt, summarisation"),
        ("../secrets", None, "is unknown"),
        ("sharegpt", "poisson", "without arrival times"),
        ("chat", "on-off", "it has poisson, gamma"),
        ("summarisation", "gamma", "it has poisson"),
    ],
)
def test_bad_names_get_one_line(name: str, kind: str | None, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        named_workload(name, kind)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_names_are_read_loosely() -> None:
    assert named_workload(" Chat ").name == "chat"


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**32 - 1), st.floats(0.05, 2.5))
def test_any_trace_fits(rows: int, seed: int, sigma: float) -> None:
    """Means and extremes of any trace are kept; quantiles never fall."""
    rng = np.random.default_rng(seed)
    prompts = np.maximum(np.round(np.exp(rng.normal(6, sigma, rows))), 1)
    outputs = np.maximum(np.round(prompts * rng.random(rows)), 1)
    table = fit_joint_table(prompts, outputs)
    recorded, law = Pairs(prompts, outputs), table.law()
    assert (np.diff(table.prompts, axis=1) >= 0).all()
    assert (np.diff(table.outputs, axis=1) >= 0).all()
    # the nearest whole number of an even spread moves a mean by far less than a token
    assert law.prompt_law.mean() == pytest.approx(recorded.prompt_law.mean(), abs=0.5, rel=1e-3)
    assert law.output_law.mean() == pytest.approx(recorded.output_law.mean(), abs=0.5, rel=1e-3)
    assert law.prompt_law.longest == recorded.prompt_law.longest
    assert law.output_law.longest == recorded.output_law.longest


def test_levels_must_rise() -> None:
    with pytest.raises(InputError, match="bin_levels"):
        fit_joint_table([1, 2], [1, 2], bin_levels=[0, 0.5, 0.4, 1])


def test_script_without_a_folder_says_how(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([]) == 2
    assert "DATA_FOLDER" in capsys.readouterr().err

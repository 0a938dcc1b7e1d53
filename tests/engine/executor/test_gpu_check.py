"""The check for a GPU, at smoke size on the CPU: nothing but torch, numpy and numba is needed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tileq_engine.executor import TokenHashBackend
from tileq_engine.gpu_check.checking import SMOKE, Work
from tileq_engine.gpu_check.planning import demand_of, single_plan
from tileq_engine.gpu_check.report import report_text
from tileq_engine.requests import Requests
from tileq_theory.iteration_time import IterationTime

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)"
)
# what a CUDA image does not carry
BARE = """
import sys
GONE = {"cvxpy", "scipy", "pydantic", "matplotlib", "cyclopts", "joblib", "pyarrow"}
GONE |= {"jaxtyping", "beartype", "highspy", "tileq", "tileq_profiling", "rich", "pandas", "safetensors"}
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in GONE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Gone())
import importlib.util as u
find = u.find_spec
u.find_spec = lambda name, package=None: None if name.split(".")[0] in GONE else find(name, package)
"""


def bare(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = BARE + "import runpy\nrunpy.run_module('tileq_engine.gpu_check', run_name='__main__')\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environment, capture_output=True, text=True, check=False
    )


@needs_torch
def test_it_runs_where_only_torch_and_numba_are(tmp_path: Path) -> None:
    done = bare("--device", "cpu", "--smoke", "--budget", "300", "--out", str(tmp_path / "report"))
    assert done.returncode == 0, done.stderr + done.stdout
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["right"] and document["complete"] and document["parts"]["tokens"]["different"] == 0
    assert document["parts"]["logits, fp32"]["max_abs_error"] < 1e-3
    assert document["parts"]["tokens"]["preemptions"] > 0
    assert document["parts"]["validation"]["summary"]["replays_same"]
    assert 0 < document["parts"]["roofline"]["shares"]["prefill"]["matmul_share"] < 3
    assert (tmp_path / "report.md").read_text() == done.stdout
    for heading in ("## Roofline", "## Profile", "## Validation", "## Transformers"):
        assert heading in done.stdout


@needs_torch
def test_what_ends_the_check_leaves_the_parts_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tileq_engine.gpu_check import checking

    def interrupted(work: Work) -> dict[str, object]:
        raise KeyboardInterrupt

    monkeypatch.setattr(checking, "_tokens", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checking.check(device="cpu", smoke=True, out=tmp_path / "report")
    document = json.loads((tmp_path / "report.json").read_text())
    assert list(document["parts"]) == ["logits, fp32"]
    assert not document["complete"] and not document["right"]
    assert "CUT SHORT" in (tmp_path / "report.md").read_text()


def test_a_place_that_cannot_be_written_is_said_first(tmp_path: Path) -> None:
    done = bare("--device", "cpu", "--smoke", "--out", str(tmp_path / "nowhere" / "report"))
    assert done.returncode == 2 and done.stdout == ""
    assert "there is no folder" in done.stderr.splitlines()[-1]


@needs_torch
def test_no_gpu_is_one_clear_line(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done = bare("--device", "cuda", "--out", str(tmp_path / "report"))
    assert done.returncode == 2 and done.stdout == ""
    assert "device 'cuda' is not there" in done.stderr.splitlines()[-1]


def test_a_part_that_fails_is_reported_and_the_others_run() -> None:
    work = Work("cpu", SMOKE, None, None, float("inf"), 10.0, print)

    def broken() -> dict[str, object]:
        raise RuntimeError("CUDA error: an illegal memory access")

    work.run("logits, fp32", broken)
    work.run(
        "profile",
        lambda: {"right": True, "points": [], "fit": {}, "held_out_median_error": 0.0, "loop_overhead_s": 0.0},
    )
    text = report_text(
        {"conditions": {"model": "m", "device": "d"}, "right": False, "took_s": 1.0, "parts": work.parts}
    )
    assert "FAILED" in text and "illegal memory access" in text and "## Profile" in text
    late = Work("cpu", SMOKE, None, None, 0.0, 10.0, print)
    late.run("profile", broken)
    assert late.parts["profile"] == {"right": False, "skipped": "no time was left"}


def test_the_plan_without_a_solver_is_the_programs() -> None:
    """Demand as the theory counts it, and its best single budget not above lambda* of the capacity program."""
    from tileq_theory.capacity import Limits, capacity
    from tileq_theory.lengths import Pairs

    g = np.random.default_rng(0)
    lengths = Requests.from_arrays(
        arrival_ps=np.zeros(200, dtype=np.int64),
        prompt_tokens=g.integers(4, 90, 200),
        output_tokens=g.integers(2, 40, 200),
    )
    ours = demand_of(lengths, 32)
    theirs = Pairs(lengths.prompt_tokens, lengths.output_tokens).demand(chunk_tokens=32, convention="engine")
    assert np.allclose(ours.vector(), theirs.vector())
    time = IterationTime(launch_s=2e-3, weight_floor_s=1e-3, token_s=5e-5, kv_token_s=1e-7, sequence_s=1e-5)
    plan = single_plan(time, lengths, 128, 32, TokenHashBackend(4096))
    limits = Limits(max_batch_tokens=128, max_num_seqs=32, kv_tokens=4096.0 * 16)
    least = Pairs(lengths.prompt_tokens, lengths.output_tokens).demand(
        chunk_tokens=128, convention="engine", counting="least"
    )
    best = capacity(time, least, limits).rate_per_s
    assert 0.9 * best < plan.rate_per_s <= best * (1 + 1e-9)
    assert plan.prefill_tokens + plan.decode_tokens <= plan.tokens

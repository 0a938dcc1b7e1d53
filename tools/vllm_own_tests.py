"""Run vLLM's own scheduler tests, out of its source distribution, on a scheduler of Tileq's.

    python tools/vllm_own_tests.py vllm-0.32.0.tar.gz [pytest's arguments]

They are run where they lie, not copied: the plugin in this file gives their `create_scheduler` the class of Tileq that
does as vLLM's does (policy vllm_v1) and a model that need not be downloaded. A test of what Tileq's schedulers refuse
(connectors, pipelines, pooling, vLLM's own priority queue) does not apply and is skipped, with what was refused.

The archive comes by ``pip download --no-deps --no-binary vllm vllm==0.32.0`` with VLLM_TARGET_DEVICE=empty and
VLLM_VERSION_OVERRIDE=0.32.0 in the environment.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_FILES = ("tests/v1/core/test_scheduler.py", "tests/v1/core/test_async_scheduler.py")
_MODEL = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "activation_function": "relu",
    "hidden_size": 768,
    "ffn_dim": 3072,
    "word_embed_proj_dim": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "do_layer_norm_before": True,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
    "torch_dtype": "float16",
}
_OTHERWISE = {
    "test_fcfs_mixed_blocked_types_remote_load_drains_first": (
        "whoever was not ready (a grammar is compiled) stands in line from when it is, not from when it came"
    ),
}
_WHOSE, _OUTCOMES = "TILEQ_OWN_TESTS_OF", "TILEQ_OWN_TESTS_OUTCOMES"
_found: dict[str, str] = {}
SETTINGS = {"policy": "vllm_v1", "params": {"admission": "sequence"}, "log_every_s": 0}


def main(arguments: list[str]) -> int:
    """Run the tests on vLLM's asynchronous scheduler, then on Tileq's; return 1 if one passes there and fails here."""
    archive, *rest = arguments
    named = [a for a in rest if a.startswith("tests/")] or list(_FILES)
    rest = [a for a in rest if a not in named]
    with tempfile.TemporaryDirectory(prefix="tileq-vllm-tests-") as folder:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, members=[m for m in packed.getmembers() if "/tests/" in m.name], filter="data")
        root = next(Path(folder).iterdir())
        model = root / "facebook" / "opt-125m"  # by this name, seen from where the tests run
        model.mkdir(parents=True)
        (model / "config.json").write_text(json.dumps(_MODEL), encoding="utf-8")
        theirs = run(root, "vllm", [*named, *rest, "--tb=no"])
        ours = run(root, "tileq", [*named, *rest, "--tb=short"])
    lost = [name for name, outcome in ours.items() if outcome == "failed" and theirs.get(name) == "passed"]
    meant = [name for name in lost if name.rpartition("::")[2] in _OTHERWISE]
    kinds = {kind: sum(1 for o in ours.values() if o == kind) for kind in ("passed", "skipped", "failed")}
    lines = [
        f"of {len(ours)} tests {kinds['passed']} pass and {kinds['skipped']} do not apply;",
        f"{kinds['failed'] - len(lost)} fail on vLLM's AsyncScheduler too (made for the other one, or lack a fixture);",
        *(f"otherwise by intent: {name}: {_OTHERWISE[name.rpartition('::')[2]]}" for name in meant),
        *(f"FAILED {name}" for name in lost if name not in meant),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(len(lost) > len(meant) or not kinds["passed"])


def run(root: Path, whose: str, arguments: list[str]) -> dict[str, str]:
    """Run the tests on the scheduler of `whose`; return each one's outcome."""
    outcomes = root / f"{whose}.json"
    paths = os.pathsep.join([str(root), str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", _WHOSE: whose, _OUTCOMES: str(outcomes)}
    plain = ["--noconftest", "-p", "vllm_own_tests", "-p", "no:cacheprovider", "-p", "no:warnings", "-q"]
    command = [sys.executable, "-m", "pytest", *plain, "--rootdir", str(root), "-c", os.devnull, *arguments]
    subprocess.run(command, cwd=root, env=environment, check=False)
    found: dict[str, str] = json.loads(outcomes.read_text(encoding="utf-8"))
    return found


def pytest_configure(config: Any) -> None:
    """Give the tests' `create_scheduler` Tileq's class and a model on this disk."""
    config.addinivalue_line("markers", "cpu_test: vLLM's own mark")
    from tests.v1.core import utils
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    tried = AsyncScheduler if os.environ[_WHOSE] == "vllm" else _tileq()

    made = utils.create_scheduler

    @functools.wraps(made)
    def create_scheduler(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("scheduler_cls") in (None, Scheduler, AsyncScheduler):
            kwargs["scheduler_cls"] = tried
        kwargs.setdefault("skip_tokenizer_init", True)
        return made(*args, **kwargs)

    utils.create_scheduler = create_scheduler


def _tileq() -> type:
    from tileq_engine.vllm import TileqScheduler

    class Tried(TileqScheduler):  # type: ignore[misc]
        defaults = SETTINGS

    return Tried


def pytest_runtest_logreport(report: Any) -> None:
    """Note each test's outcome."""
    if report.when == "call" or report.outcome != "passed":
        _found[report.nodeid] = report.outcome


def pytest_sessionfinish(session: Any) -> None:
    """Write the outcomes down."""
    Path(os.environ[_OUTCOMES]).write_text(json.dumps(_found), encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, Any, Any]:
    """Skip a test whose configuration Tileq refuses, and one that needs a model from the hub."""
    try:
        return (yield)
    except Exception as error:
        text = str(error)
        if "do not run with" in text:
            pytest.skip(f"does not apply: {text}")
        if "validation error for ModelConfig" in text:
            pytest.skip("needs a model from the hub")
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A calibration of another machine is used as asked, and said; one's own times are not called somebody else's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

COEFFICIENTS = {"launch_s": 0.004, "weight_floor_s": 0.008, "token_s": 4e-5, "kv_token_s": 6e-8}
FITTED = {**COEFFICIENTS, "provenance": {"kind": "fitted", "source": "a log", "notes": []}}


def written(folder: Path, **conditions: object) -> Path:
    path = folder / "mine.json"
    path.write_text(json.dumps({"iteration_time": FITTED, "conditions": conditions}), encoding="utf-8")
    return path


def warnings(path: Path, **asked: str) -> list[str]:
    import tileq as tq

    return list(tq.plan(gpu="h100-sxm", model="llama-3.1-8b", workload="chat", calibration=path, **asked).warnings)


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        ({"device": "a100-sxm-80gb"}, "gpu a100-sxm-80gb (asked: h100-sxm)"),
        ({"device": "h100-sxm", "model": "qwen2.5-7b"}, "model qwen2.5-7b (asked: llama-3.1-8b)"),
        ({"device": "h100-sxm", "model": "llama-3.1-8b", "tp": 2}, "tp 2 (asked: 1)"),
        ({"device": "a machine of ours", "model": "llama-3.1-8b"}, "gpu a machine of ours (asked: h100-sxm)"),
    ],
)
def test_another_machine_is_named(tmp_path: Path, conditions: dict[str, object], told: str) -> None:
    assert any(
        "mine.json was measured with" in line and told in line for line in warnings(written(tmp_path, **conditions))
    )


@pytest.mark.parametrize(
    "conditions",
    [
        {},
        {"tp": 4, "dtype": "fp8"},
        {"device": "h100-sxm", "model": "llama-3.1-8b", "dtype": "fp16"},
        {"device": "NVIDIA H100 80GB HBM3"},
    ],
)
def test_the_same_machine_and_an_unknown_one_are_not(tmp_path: Path, conditions: dict[str, object]) -> None:
    found = warnings(written(tmp_path, **conditions))
    assert not any("was measured with" in line for line in found)
    assert not any("not measured on your machine" in line for line in found)


def test_times_of_the_catalogue_are_not_ones_own() -> None:
    import tileq as tq
    from tileq_theory.calibrations import calibration_names, named_calibration

    fitted = [n for n in calibration_names() if named_calibration(n).time.provenance.kind == "fitted"]
    answer = tq.plan(gpu="h100-sxm", model="llama-3.1-8b", workload="chat", calibration=fitted[0])
    assert any("not measured on your machine" in line for line in answer.warnings)

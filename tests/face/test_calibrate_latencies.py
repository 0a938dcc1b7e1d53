"""`tileq calibrate` of latencies without step times: found by content, fitted, written, refused in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tileq as tq
from tileq.cli.run import run
from tileq_engine.simulator import simulate

TRUE = tq.IterationTime(launch_s=0.003, weight_floor_s=0.016, token_s=8e-5, pair_s=4e-9, kv_token_s=1.5e-7)
ENGINE = tq.EngineConfig(token_budget=2048, max_num_seqs=64, kv_tokens=40_000)
ASKED = ["--token-budget", "2048", "--max-num-seqs", "64", "--kv-tokens", "40000", "--class", "512:64"]
Capture = pytest.CaptureFixture[str]


def bench(**changes: Any) -> dict[str, Any]:
    """Return what `vllm bench serve --save-detailed` writes of 150 requests at 1.5/s, 2 % of noise."""
    rng, count = np.random.default_rng(0), 150
    asked = tq.Requests.from_arrays(
        arrival_s=np.cumsum(rng.exponential(1 / 1.5, count)).round(9),
        prompt_tokens=np.clip(rng.lognormal(6.5, 1, count), 8, 6000).astype(int),
        output_tokens=rng.integers(2, 300, count),
    )
    raw = simulate(asked, tq.policy("vllm_v1"), TRUE, ENGINE)
    ttft = (raw.first_token_ps - raw.arrival_ps) / 1e12 * rng.lognormal(0, 0.02, count)
    gap = (raw.finish_ps - raw.first_token_ps) / 1e12 / (asked.output_tokens - 1) * rng.lognormal(0, 0.01, count)
    return {
        "backend": "vllm",
        "tokenizer_id": "some/model",
        "model_id": "some/model",
        "request_rate": 1.5,
        "duration": 110.0,
        "completed": count,
        "failed": 0,
        "total_input_tokens": int(asked.prompt_tokens.sum()),
        "total_output_tokens": int(asked.output_tokens.sum()),
        "input_lens": asked.prompt_tokens.tolist(),
        "output_lens": asked.output_tokens.tolist(),
        "start_times": (27536.5 + raw.arrival_ps / 1e12).tolist(),
        "ttfts": ttft.tolist(),
        "itls": [[float(g)] * (int(o) - 1) for g, o in zip(gap, asked.output_tokens, strict=True)],
        "errors": [""] * count,
        **changes,
    }


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(arguments: list[str], capsys: Capture) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_latencies_become_a_calibration_that_plan_takes(here: Path, capsys: Capture) -> None:
    Path("result").write_bytes(gzip.compress(json.dumps(bench()).encode()))  # the name says nothing, gzip or not
    d = document(["calibrate", "result", *ASKED, "--out", "c.json", "--report", "c.html"], capsys)
    assert d["scope"] == "latencies" and d["points"] == 300 and d["phases"] == {}
    time = d["iteration_time"]
    assert time["launch_s"] + time["weight_floor_s"] == pytest.approx(0.019, rel=0.05)
    assert time["token_s"] == pytest.approx(TRUE.token_s, rel=0.2)
    told = d["latencies"]
    assert told["combinations"][0]["determined"] and told["combinations"][0]["error"] < 0.05
    assert {row["regime"] for row in d["held_out"]} == {"all", "ttft_s", "tpot_s"}
    assert all(row["median_abs"] < 0.15 for row in d["held_out"])
    assert d["lambda_star"]["outer_low_per_s"] < d["lambda_star"]["outer_high_per_s"]
    assert d["limits"] == {"max_batch_tokens": 2048, "kv_tokens": 40000}
    page = Path("c.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 1 and "What these latencies determine" in page
    planned = document(["plan", "--calibration", "c.json", "--class", "512:64"], capsys)
    assert planned["iteration_time"]["token_s"] == pytest.approx(time["token_s"], rel=1e-6)
    assert run(["calibrate", "result", *ASKED]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80 and "no step times: fitted through the simulator" in text


def test_one_run_of_several_and_options_that_do_not_fit(here: Path, capsys: Capture) -> None:
    Path("sweep.json").write_text(json.dumps([bench(), bench(max_num_seqs=64)]), encoding="utf-8")
    assert document(["calibrate", "sweep.json", *ASKED], capsys)["points"] == 600
    assert document(["calibrate", "sweep.json", *ASKED, "--where", "run=2"], capsys)["points"] == 300
    for arguments, words in (
        (["--where", "engine=0"], "expected run=NUMBER"),
        (["--where", "run=3"], "run=3 is not one of them"),
        (["--launch", "0.001"], "latencies tell the launch time themselves"),
        (["--policy", "vlm_v1"], "did you mean vllm_v1"),
        (["--rate", "0"], "rate is 0"),
        (["--concurrency", "0"], "concurrency is 0"),
    ):
        assert run(["calibrate", "sweep.json", *ASKED, *arguments]) == 2, arguments
        printed = capsys.readouterr()
        assert printed.out == "" and len(printed.err.splitlines()) == 1 and words in printed.err, printed.err


BAD = {
    "no latency": ({"ttfts": [0.0] * 150, "itls": [[]] * 150}, "tells no latency"),
    "NaN": ({"ttfts": [float("nan")] * 150}, "nan"),
    "negative": ({"ttfts": [-1.0] * 150}, "-1"),
    "lists of two lengths": ({"ttfts": [0.1]}, "lists of different length"),
    "nothing served": ({"completed": 0}, "no request of this run completed"),
    "one batch only": ({"input_lens": [8] * 150, "ttfts": [0.019] * 150}, "token_s"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_fitted_is_one_line(case: str, here: Path, capsys: Capture) -> None:
    changes, words = BAD[case]
    Path("a.json").write_text(json.dumps(bench(**changes)), encoding="utf-8")
    assert run(["calibrate", "a.json", *ASKED]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1 and words in printed.err, printed.err


def test_milliseconds_read_as_seconds_are_questioned(here: Path, capsys: Capture) -> None:
    right = bench()
    wrong = bench(ttfts=[1e3 * t for t in right["ttfts"]], itls=[[1e3 * g for g in gaps] for gaps in right["itls"]])
    Path("a.json").write_text(json.dumps(wrong), encoding="utf-8")
    code = run(["calibrate", "a.json", *ASKED])
    printed = capsys.readouterr()
    # an engine a thousand times slower than its arrivals tells nothing of a token; where it does, the question stands
    assert code in (0, 2) and "milliseconds taken for seconds?" in (printed.err + printed.out).replace("\n  ", " ")

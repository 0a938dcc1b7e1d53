"""`tileq calibrate`, `tileq profile` and ready-made calibrations: answers, files, and one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tileq as tq
from tileq.cli.run import run
from tileq_engine.simulator import simulate
from tileq_profiling.profile import Conditions, Profile, save_profile
from tileq_profiling.steps import MeasuredRun

TRUE = tq.IterationTime(
    launch_s=0.004, tile_s=0.010, tile_tokens=128, token_s=2e-5, pair_s=4e-9, kv_token_s=2e-8, sequence_s=1e-5
)
Capture = pytest.CaptureFixture[str]
NAMED = "rtx-4090/llama-3.1-8b"


def measured(seed: int = 0, *, decode: bool = True, prefill: bool = True, scale: float = 1.0) -> Profile:
    """Return batches of TRUE's times with 2 % noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for n in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 120) * 3 if decode else ():
        rows.append((n, 0.0, float(n * rng.integers(64, 4096)), n, 0))
    for c in (16, 60, 120, 128, 140, 200, 256, 270, 384, 400, 512, 640, 700, 768, 1000, 1024) * 3 if prefill else ():
        h = int(rng.integers(0, 4096))
        rows.append((c, c * (h + (c + 1) / 2), 0.0, 1, c))
    n, pairs, kv, sequences, chunk = np.array(rows, float).T
    seconds = np.asarray(TRUE(n, pairs, kv, sequences)) * rng.normal(1, 0.02, n.size) * scale
    return Profile.of(
        tokens=n,
        pairs=pairs,
        kv_tokens=kv,
        sequences=sequences,
        seconds=seconds,
        prefill_tokens=chunk,
        conditions=Conditions(device="some accelerator", model="some model", source="synthetic"),
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(arguments: list[str], capsys: Capture) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_fit_its_files_and_its_document(here: Path, capsys: Capture) -> None:
    profile = measured()
    save_profile(profile, "mine.csv")
    d = document(["calibrate", "mine.csv", "--out", "cal.json", "--report", "cal.html", "--class", "512:64"], capsys)
    assert d["tile"]["answer"] == "tile" and d["tile"]["tile_tokens"] == 128
    # 2 % of noise: no held-out median can be far above the noise's own median, 1.35 %
    assert d["median_error"] < 0.03
    assert {"all", "prefill", "decode"} <= {row["regime"] for row in d["held_out"]}
    band = d["lambda_star"]
    assert (
        band["outer_low_per_s"]
        <= band["low_per_s"]
        <= band["rate_per_s"]
        <= band["high_per_s"]
        <= band["outer_high_per_s"]
    )
    truth = tq.capacity(
        TRUE,
        tq.Workload((tq.parse_class("512:64"),)).demand(chunk_tokens=1024, counting="least"),
        tq.Limits(max_batch_tokens=1024),
    ).rate_per_s
    assert band["outer_low_per_s"] <= truth <= band["outer_high_per_s"]
    assert d["limits"] == {"max_batch_tokens": 1024, "kv_tokens": None}
    assert any("without a limit of memory" in text for text in d["warnings"])
    page = Path("cal.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 3 and "http://" not in page.replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "")
    again = tq.calibrate("mine.csv", classes=["512:64"])
    assert again.to_dict() == d


def test_plan_takes_the_written_file_and_the_document(here: Path, capsys: Capture) -> None:
    save_profile(measured(), "mine.csv")
    d = document(["calibrate", "mine.csv", "--out", "cal.json"], capsys)
    Path("document.json").write_text(json.dumps(d), encoding="utf-8")
    plans = [document(["plan", "--calibration", name], capsys) for name in ("cal.json", "document.json")]
    assert plans[0]["rate_per_s"] == pytest.approx(plans[1]["rate_per_s"], rel=1e-9)
    assert plans[0]["iteration_time"]["tile_tokens"] == 128
    band = d["iteration_time"]["error_band"]
    assert plans[0]["error_band"]["time_ratio"] == pytest.approx([band["low"], band["high"]])


def test_the_text_says_tile_errors_and_rate(here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    save_profile(measured(), "mine.csv")
    assert run(["calibrate", "mine.csv", "--class", "512:64", "--out", "cal.json"]) == 0
    text = capsys.readouterr().out
    for words in ("Tile: 128 tokens", "batches the fit did not see", "lambda* =", "Calibration written to cal.json"):
        assert words in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("given", "missing"), [({"decode": False}, "decode is not"), ({"prefill": False}, "prefill is not")]
)
def test_one_regime_only_is_told(given: dict[str, bool], missing: str, here: Path, capsys: Capture) -> None:
    save_profile(measured(**given), "mine.csv")
    d = document(["calibrate", "mine.csv"], capsys)
    assert any(missing in text for text in d["warnings"])


def test_milliseconds_taken_for_seconds_are_questioned(here: Path, capsys: Capture) -> None:
    save_profile(measured(scale=1000.0), "mine.csv")
    d = document(["calibrate", "mine.csv"], capsys)
    assert any("milliseconds taken for seconds" in text or "taken for seconds?" in text for text in d["warnings"])
    save_profile(measured(scale=1e-3), "fast.csv")
    assert any("divided by 1000" in text for text in document(["calibrate", "fast.csv"], capsys)["warnings"])


HEADER = "tokens,pairs,kv_tokens,sequences,seconds,repeats,prefill_tokens\n"
BAD = {
    "no such file": ({}, ["calibrate", "absent.csv"], ["absent.csv: no such file"]),
    "an empty file": ({"a.csv": ""}, ["calibrate", "a.csv"], ["a.csv", "empty"]),
    "garbage": ({"a.txt": "once upon a time\nthere was no profile\n"}, ["calibrate", "a.txt"], ["a.txt"]),
    "bytes": ({"a.bin": "\x00\x01\x02" * 50}, ["calibrate", "a.bin"], ["a.bin"]),
    "a trace, not times": (
        {"a.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"},
        ["calibrate", "a.csv"],
        ["a.csv"],
    ),
    "NaN": ({"a.csv": HEADER + "8,0,64,8,nan,1,0\n"}, ["calibrate", "a.csv"], ["seconds", "nan"]),
    "a time of 0": ({"a.csv": HEADER + "8,0,64,8,0,1,0\n"}, ["calibrate", "a.csv"], ["seconds"]),
    "a header alone": ({"a.csv": HEADER}, ["calibrate", "a.csv"], ["no"]),
    "two batches": (
        {"a.csv": HEADER + "8,0,64,8,0.01,1,0\n16,0,64,16,0.02,1,0\n"},
        ["calibrate", "a.csv"],
        ["2 distinct batches", "at least 3"],
    ),
    "an unknown format": ({"a.csv": HEADER}, ["calibrate", "a.csv", "--format", "vlm"], ["'vlm'"]),
    "a table without its header": (
        {"b.csv": "\ufeff" + HEADER + "8,0,64,8,0.01,1,0\n"},
        ["calibrate", "b.csv"],
        ["b.csv.json: no profile header"],
    ),
    "a rate of step times": ({"a.csv": HEADER}, ["calibrate", "a.csv", "--rate", "3"], ["rate is 3.0", "leave it out"]),
    "clients of step times": ({"a.csv": HEADER}, ["calibrate", "a.csv", "--concurrency", "3"], ["concurrency is 3"]),
    "characters of step times": (
        {"a.csv": HEADER},
        ["calibrate", "a.csv", "--chars-per-token", "0"],
        ["--chars-per-token is 0.0"],
    ),
    "a scheduler of step times": ({"a.csv": HEADER}, ["calibrate", "a.csv", "--policy", "vlm"], ["policy is 'vlm'"]),
    "a budget of step times": (
        {"a.csv": HEADER},
        ["calibrate", "a.csv", "--token-budget", "9"],
        ["token-budget is 9"],
    ),
    "seats of step times": ({"a.csv": HEADER}, ["calibrate", "a.csv", "--max-num-seqs", "9"], ["--max-num-seqs is 9"]),
    "half a pair": ({"a.csv": HEADER}, ["calibrate", "a.csv", "--where", "engine"], ["'engine'", "KEY=VALUE"]),
    "an unknown model": ({"a.csv": HEADER}, ["calibrate", "a.csv", "--model", "lama-3.1-8b"], ["did you mean"]),
    "a folder that is not there": ({}, ["calibrate", "a.csv", "--out", "nowhere/a.json"], ["nowhere"]),
    "a profile of no format": ({}, ["profile", "--out", "a.json"], ["a.json", ".csv or .parquet"]),
    "no budget": ({}, ["profile", "--budget", "0", "--out", "a.csv"], ["budget is 0"]),
    "no name of a profile": ({}, ["profile"], ["--out"]),
    "a calibration of no name": ({}, ["plan", "--calibration", "rtx-4090/llama-3.1-8"], [f"did you mean {NAMED}?"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case: str, here: Path, capsys: Capture) -> None:
    files, arguments, says = BAD[case]
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
        if name.endswith(".csv") and text.startswith(HEADER):
            header = {"kind": "tileq profile", "schema_version": 1, "table": name}
            Path(name + ".json").write_text(json.dumps(header), encoding="utf-8")
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("tileq: error: ")
    for words in says:
        assert words in line


def test_measuring_without_torch_names_the_extra(here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    assert run(["profile", "--out", "a.csv"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1
    assert "pip install 'tileq[torch]'" in printed.err
    assert not Path("a.csv").exists()


def test_a_measurement_is_told(here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def measure(device: str, model: Any, **options: Any) -> Profile:
        asked.update(options, device=device, model=model)
        return measured()

    monkeypatch.setattr("tileq_profiling.measure.measure", measure)
    d = document(["profile", "--device", "cuda", "--model", "llama-3.1-8b", "--budget", "30", "--out", "a.csv"], capsys)
    assert (asked["device"], asked["model"], asked["budget_s"]) == ("cuda", "llama-3.1-8b", 30.0)
    assert d["points"] == len(measured()) and d["phases"] == {"decode": 33, "prefill": 48} and d["file"] == "a.csv"
    assert run(["profile", "--out", "a.csv"]) == 0
    assert "tileq calibrate a.csv" in capsys.readouterr().out


def test_a_ready_made_calibration_is_taken_by_name(here: Path, capsys: Capture) -> None:
    time = tq.named_calibration(NAMED).time
    d = document(["plan", "--gpu", "rtx-4090", "--calibration", NAMED], capsys)
    assert d["iteration_time"]["launch_s"] == time.launch_s and d["iteration_time"]["tile_tokens"] == time.tile_tokens
    assert not any("was measured with" in text for text in d["warnings"])
    other = document(["plan", "--gpu", "h100-sxm", "--calibration", NAMED], capsys)
    assert any("gpu rtx-4090 (asked: h100-sxm)" in text for text in other["warnings"])
    simulated = document(
        ["simulate", "--gpu", "rtx-4090", "--calibration", NAMED, "--load=0.5", "--requests=50", "--replications=2"],
        capsys,
    )
    assert simulated["requests"]["finished"] > 0


@pytest.mark.parametrize("name", tq.calibration_names())
def test_every_ready_made_calibration_can_be_planned_with(name: str, here: Path) -> None:
    c = tq.named_calibration(name)
    known = c.model in tq.model_names()  # some measured models are not in the catalogue: their times still are
    answer = tq.plan(
        gpu=c.gpu, model=c.model if known else "qwen3-8b", tp=c.tp, dtype=c.dtype, classes=["512:64"], calibration=name
    )
    assert answer.rate_per_s > 0 and answer.setting.time == c.time
    assert any("was measured with" in text for text in answer.warnings) is not known


def test_a_file_comes_before_a_name(here: Path) -> None:
    (here / "rtx-4090").mkdir()
    (here / NAMED).write_text('{"launch_s": 0.25}', encoding="utf-8")
    assert tq.plan(gpu="rtx-4090", calibration=NAMED).setting.time.launch_s == 0.25


def recorded_run() -> MeasuredRun:
    """Return what an engine on TRUE would have recorded of 30 requests."""
    rng = np.random.default_rng(3)
    asked = tq.Requests.from_arrays(
        arrival_s=np.r_[0.0, np.sort(rng.uniform(0, 5, 29)).round(6)],
        prompt_tokens=rng.integers(20, 800, 30),
        output_tokens=rng.integers(2, 100, 30),
    )
    made = tq.Run.of(
        simulate(asked, tq.policy("vllm_v1"), TRUE, tq.EngineConfig(token_budget=512, max_num_seqs=16, kv_tokens=8192))
    )
    table = made.requests
    ttft, e2e = ((table[name] - table["arrival_ps"]) / 1e12 for name in ("first_token_ps", "finish_ps"))
    return MeasuredRun(
        "a run",
        "test",
        table["prompt_tokens"],
        table["output_tokens"],
        table["arrival_ps"] / 1e12,
        ttft_s=ttft,
        tpot_s=(e2e - ttft) / (table["output_tokens"] - 1),
        e2e_s=e2e,
    )


def test_a_measured_run_is_compared_with_its_replay(here: Path) -> None:
    save_profile(measured(), "mine.csv")
    engine = {"token_budget": 512, "max_num_seqs": 16, "kv_tokens": 8192}
    answer = tq.calibrate("mine.csv", replay=recorded_run(), classes=["512:64"], **engine)
    found = answer.to_dict()["replay"]["quantities"]
    # times with 2 % noise over 81 batches: what is left of it in a mean, and the queue's magnification of it
    for name in ("throughput_per_s", "ttft_s mean", "tpot_s p50", "e2e_s mean"):
        assert abs(found[name]["error"]) < 0.05, name
    assert "Replay of a run" in answer.text()
    with pytest.raises(tq.InputError, match="does not state its engine's token_budget; give it"):
        tq.calibrate("mine.csv", replay=recorded_run(), max_num_seqs=16, kv_tokens=8192)


def test_a_run_that_is_none_is_refused(here: Path, capsys: Capture) -> None:
    save_profile(measured(), "mine.csv")
    assert run(["calibrate", "mine.csv", "--replay", "absent"]) == 2
    assert "absent" in capsys.readouterr().err


def test_the_measured_run_of_the_kernel_profile_by_command(data: Path, here: Path, capsys: Capture) -> None:
    base = data / "llmservingsim"
    profile = base / "profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1"
    measured_run = base / "bench/examples/RTX4090/Llama-3.1-8B/vllm"
    asked = ["calibrate", str(profile), "--model", "llama-3.1-8b", "--gpu", "rtx-4090", "--replay", str(measured_run)]
    d = document(asked, capsys)["replay"]["quantities"]
    for name in ("throughput_per_s", "ttft_s mean", "tpot_s p50", "running over time", "kv_usage over time"):
        assert abs(d[name]["error"]) < 0.10, (name, d[name])


def test_a_profile_that_a_spreadsheet_wrote_is_the_same_profile(here: Path) -> None:
    """A byte-order mark, CRLF and empty lines at the end are what spreadsheets and editors add."""
    save_profile(measured(), "mine.csv")
    plain = tq.calibrate("mine.csv").time
    for name in ("mine.csv", "mine.csv.json"):
        text = Path(name).read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        Path(name).write_bytes(b"\xef\xbb\xbf" + text + b"\r\n\r\n")
    assert tq.calibrate("mine.csv").time.to_dict() == plain.to_dict()

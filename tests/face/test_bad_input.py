"""Bad input: exit 2, one line that names what was given and what to do, nothing on stdout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tileq.cli.run import run

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2023-11-16 18:15:46.6805900,374,44\n"
FILES = {
    "empty.csv": "",
    "header.csv": AZURE,
    "word.csv": AZURE + ROW + ROW + "2023-11-16 18:15:47.0000000,12,many\n",
    "negative.csv": AZURE + ROW + "2023-11-16 18:15:47.0000000,-7,3\n",
    "nan.csv": AZURE + "2023-11-16 18:15:47.0000000,nan,3\n",
    "infinite.csv": AZURE + "2023-11-16 18:15:47.0000000,12,inf\n",
    "prose.txt": "once upon a time\nthere was no trace\n",
    "twice.json": '{"model_type": "llama", "hidden_size": 4096, "hidden_size": 2048}',
    "broken.json": '{"model_type": "llama",',
    "gpu.toml": "name = ",
    "unknown.json": '{"launch_s": 0.01, "tile_size": 128}',
    "word.json": '{"iteration_time": {"launch_s": "fast"}}',
    "list.json": "[1, 2]",
    "untimely.json": '{"launch_s": -0.5}',
}

CASES = {
    # names
    "an unknown GPU": (["plan", "--gpu", "h10"], ["'h10'", "did you mean", "h100-sxm"]),
    "an unknown model": (["plan", "--model", "lama-3.1-8b"], ["'lama-3.1-8b'", "did you mean llama-3.1-8b"]),
    "an unknown workload": (["plan", "--workload", "chatt"], ["'chatt'", "did you mean chat?"]),
    "an unknown engine": (["plan", "--engine", "vlm"], ["'vlm'", "did you mean vllm?"]),
    "an unknown dtype": (["plan", "--dtype", "fp88"], ["'fp88'", "did you mean fp8"]),
    "an unknown KV dtype": (["plan", "--kv-dtype", "fp9"], ["'fp9'", "fp8"]),
    # what does not fit or cannot run
    "a model too large": (
        ["plan", "--gpu", "a100-sxm-80gb", "--model", "llama-3.1-70b"],
        ["does not fit", "GiB a GPU are missing", "use tp 2"],
    ),
    "arithmetic the GPU lacks": (["plan", "--gpu", "t4"], ["t4 has no bf16", "use fp16"]),
    "a degree that divides nothing": (["plan", "--tp", "3"], ["tp is 3", "1, 2, 4, 8"]),
    "a limit below one iteration": (["plan", "--tbt", "0.0001"], ["0.0001 s", "shortest possible iteration"]),
    "a first token too soon": (["plan", "--ttft", "0.0001"], ["TTFT limit is 0.0001 s", "takes at least"]),
    "a request larger than memory": (["plan", "--class", "600000:10"], ["600010 KV tokens", "never be served"]),
    "an answer larger than memory": (["region", "--class", "9:9", "--class", "9:900000"], ["never be served"]),
    # numbers
    "a rate below 0": (["plan", "--rate", "-1"], ["--rate is -1"]),
    "a limit of 0": (["plan", "--tbt", "0"], ["tbt is 0"]),
    "a first token at 0": (["plan", "--ttft", "0"], ["ttft is 0"]),
    "no tokens": (["plan", "--max-tokens", "0"], ["--max-tokens is 0"]),
    "no slots": (["plan", "--max-num-seqs", "0"], ["--max-num-seqs is 0"]),
    "no nodes": (["plan", "--nodes", "0"], ["--nodes is 0"]),
    "no replicas": (["plan", "--replicas", "0"], ["--replicas is 0"]),
    "no GPUs": (["plan", "--tp", "0"], ["tp is 0"]),
    "more memory than there is": (["plan", "--memory-utilisation", "1.5"], ["--memory-utilisation is 1.5"]),
    "no memory": (["plan", "--memory-utilisation", "0"], ["--memory-utilisation is 0"]),
    # classes
    "half a class": (["plan", "--class", "512"], ["'512'", "P:O"]),
    "a negative length": (["plan", "--class=-5:10"], ["'-5'", "1 or more"]),
    "a length of 0": (["plan", "--class", "5:0"], ["'0'", "1 or more"]),
    "a length that is no number": (["plan", "--class", "5:nan"], ["'nan'"]),
    "a length that is not finite": (["plan", "--class", "inf:5"], ["'inf'"]),
    "a share of 0": (["plan", "--class", "1:2@0"], ["share '0'"]),
    "one class twice": (["plan", "--class", "1:2", "--class", "1:2"], ["'1:2'", "more than once"]),
    "two sources of requests": (
        ["plan", "--workload", "chat", "--class", "1:2"],
        ["--workload and --class are given", "--trace, --workload"],
    ),
    "no class": (["region"], ["no classes", "--class"]),
    "too few rates": (["region", "--class", "1:2", "--class", "3:4", "--at", "1"], ["expected 2 finite numbers"]),
    "a rate that is a word": (["region", "--class", "1:2", "--at", "x"], ["--at is 'x'"]),
    "a rate that is infinite": (["region", "--class", "1:2", "--at", "inf"], ["inf"]),
    "a picture of one class": (["region", "--class", "1:2", "--plot", "a.png"], ["2 or 3 classes"]),
    # files
    "no such trace": (["plan", "--trace", "absent.csv"], ["absent.csv", "no such file; expected a trace file"]),
    "a folder for a trace": (["plan", "--trace", "folder"], ["folder is a folder"]),
    "an empty trace": (["plan", "--trace", "empty.csv"], ["empty.csv is empty"]),
    "a trace of a header": (["plan", "--trace", "header.csv"], ["header.csv", "no rows"]),
    "a word for a length": (["plan", "--trace", "word.csv"], ["row 4", "GeneratedTokens", "'many'"]),
    "a negative length in a trace": (["plan", "--trace", "negative.csv"], ["row 3", "ContextTokens", "'-7'"]),
    "a length that is nan": (["plan", "--trace", "nan.csv"], ["row 2", "ContextTokens", "'nan'"]),
    "a length that is infinite": (["plan", "--trace", "infinite.csv"], ["row 2", "GeneratedTokens", "'inf'"]),
    "an unknown format": (["plan", "--trace", "prose.txt"], ["prose.txt is of no known format", "azure-2023"]),
    "a key twice": (["plan", "--model", "./twice.json"], ["'hidden_size' appears twice"]),
    "half a JSON": (["plan", "--model", "./broken.json"], ["broken.json", "not valid JSON"]),
    "a folder for a model": (["plan", "--model", "folder"], ["folder without a config.json"]),
    "a folder for a GPU": (["plan", "--gpu", "./folder"], ["is a folder"]),
    "a GPU that is no TOML": (["plan", "--gpu", "./gpu.toml"], ["gpu.toml", "not valid TOML"]),
    "no such calibration": (["plan", "--calibration", "absent.json"], ["absent.json", "no such file"]),
    "an unknown coefficient": (["plan", "--calibration", "unknown.json"], ["'tile_size'", "did you mean tile_s"]),
    "a coefficient that is a word": (["plan", "--calibration", "word.json"], ["word.json", "launch_s is 'fast'"]),
    "a calibration that is a list": (["plan", "--calibration", "list.json"], ["expected an object"]),
    "a time below 0": (["plan", "--calibration", "untimely.json"], ["launch_s is -0.5"]),
    "a picture of no cache": (["simulate", "--plot", "a.png", "--picture", "hits"], ["--prefix-cache"]),
    "a picture of no format": (["plan", "--plot", "a.bmp"], ["'.bmp'", ".png"]),
    "a picture that is a folder": (["plan", "--plot", "folder"], ["is a folder"]),
    "a picture in no folder": (["plan", "--plot", "nowhere/a.png"], ["nowhere"]),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder that holds the bad files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("case", CASES)
def test_bad_input_gets_one_line(case: str, as_json: bool, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, says = CASES[case]
    assert run([*arguments, "--json"] if as_json else arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("tileq: error: ")
    for words in says:
        assert words in line


def test_the_same_error_in_python(here: Path) -> None:
    import tileq as tq

    with pytest.raises(tq.InputError, match=r"row 4, column GeneratedTokens: 'many'"):
        tq.plan(trace="word.csv")
    with pytest.raises(ValueError, match=r"did you mean llama-3\.1-8b"):
        tq.plan(model="lama-3.1-8b")


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--max-tokens", "1e21"],
        ["plan", "--nodes", "1e308"],
        ["plan", "--class", "10:10@1e308"],
        ["plan", "--class", "10:10", "--class", "400000:10", "--tbt", "0.0066"],
        ["region", "--class", "10:10", "--class", "20:20", "--at=1e308,1e308"],
    ],
)
def test_extreme_numbers_are_bad_input_not_failures(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1 and "error:" in said.err

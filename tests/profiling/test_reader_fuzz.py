"""Fuzzing: valid files come back exactly; damaged ones give `InputError` or what a slow plain reading gives.

The plain reading below shares no code with the readers: Python's csv and json, exact fractions, columns by name.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import gzip
import io
import json
import os
import re
from datetime import datetime
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from tileq_profiling.readers import read_trace
from tileq_theory.errors import InputError

# How much to try: TILEQ_FUZZ=20 multiplies the examples for a campaign.
EFFORT = int(os.environ.get("TILEQ_FUZZ", "1"))
CSV_KEYS = {
    "azure-2023": ("ContextTokens", "GeneratedTokens", "TIMESTAMP", "stamp"),
    "azure-2024": ("ContextTokens", "GeneratedTokens", "TIMESTAMP", "stamp"),
    "nanoflow": ("ContextTokens", "GeneratedTokens", None, 1),
    "vidur-lengths": ("num_prefill_tokens", "num_decode_tokens", None, 1),
    "vidur-arrivals": ("num_prefill_tokens", "num_decode_tokens", "arrived_at", 1),
    "burstgpt": ("Request tokens", "Response tokens", "Timestamp", 1),
    "burstgpt-3": ("Request tokens", "Response tokens", "Timestamp", 1),
    "splitwise-sim": ("prompt_size", "token_size", "arrival_timestamp", 1),
    "sarathi-run": ("request_num_prefill_tokens", "request_num_decode_tokens", None, 1),
    "lmbenchmark": ("prompt_tokens", "generation_tokens", "launch_time", 1),
    "csv": ("input tokens", "completion_tokens", "Arrival (ms)", 1000),
}
SKIPS_ZEROS = {"azure-2023", "azure-2024", "nanoflow", "burstgpt", "burstgpt-3", "sarathi-run", "lmbenchmark"}
FREE_LENGTHS = set(CSV_KEYS) | {"mooncake", "bailian", "bailian-offline", "distserve", "llmperf", "vllm-bench"}


def letters(text):
    return re.sub(r"[^a-z0-9]", "", text.casefold())


def plain_number(text):
    assert re.fullmatch(r"[ \t\r\f\v]*-?[0-9.]+([eE][-+]?[0-9]+)?[ \t\r\f\v]*", text), text
    return Fraction(text.strip())


def plain_stamp(text):
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)?", text.strip())
    whole = datetime.fromisoformat(f"{match[1]} {match[2]}{(match[4] or '+00:00').replace('Z', '+00:00')}")
    return Fraction(int(whole.timestamp())) + Fraction(match[3] or "0")


def column(header, key):
    """Position of a column: by its exact name, else by its letters, else by the nearest name (a damaged header)."""
    names = [field.strip().casefold() for field in header]
    if key.casefold() in names:
        return names.index(key.casefold())
    near = difflib.get_close_matches(letters(key), [letters(name) for name in names], n=1, cutoff=0.8)
    return [letters(name) for name in names].index(near[0]) if near else None


def plain_csv(name, content):
    prompt, output, time, unit = CSV_KEYS[name]
    delimiter = ";" if name == "csv" else ","
    text = content.decode("utf-8-sig").lstrip()
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    header, *rows = [row for row in reader if row]
    at = [None if key is None else column(header, key) for key in (prompt, output, time)]
    found = []
    for row in rows:
        assert len(row) == len(header)
        when = None
        if at[2] is not None:
            # None fails the comparison below if the reader made a time of it all the same.
            with contextlib.suppress(AssertionError, TypeError, ValueError):
                when = plain_stamp(row[at[2]]) if unit == "stamp" else plain_number(row[at[2]]) / unit
        found.append((plain_number(row[at[0]]), plain_number(row[at[1]]), when))
    return found


def unique(pairs):
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def plain_json(name, content):
    text = content.decode("utf-8-sig")
    try:
        document = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError:
        document = [json.loads(line, object_pairs_hook=unique) for line in text.splitlines() if line.strip()]
    return [(p, o, when) for p, o, when in JSON_ROWS[name](document)]


def each(prompt, output, time=None, unit=1):
    def rows(document):
        for record in document if isinstance(document, list) else [document]:
            yield record[prompt], record[output], None if time is None else Fraction(record[time]) / unit

    return rows


def llmperf_rows(document):
    answered = [r for r in document if r.get("error_code") is None]  # any code is a failure, 0 too
    return each("number_input_tokens", "number_output_tokens")(answered)


def aiperf_rows(document):
    for record in document if isinstance(document, list) else [document]:
        metadata, metrics = record["metadata"], record["metrics"]
        if (
            record.get("error") is None
            and not metadata.get("was_cancelled")
            and metadata.get("benchmark_phase") != "warmup"
        ):
            assert {metrics[key]["unit"] for key in metrics if key.endswith("sequence_length")} == {"tokens"}
            yield (
                metrics["input_sequence_length"]["value"],
                metrics["output_sequence_length"]["value"],
                Fraction(metadata["request_start_ns"]) / 10**9,
            )


def lifecycle_rows(document):
    for record in document:
        if record.get("error") is None:
            info = record["info"]
            text = info.get("request_metrics", {}).get("text", {})
            prompt = text["input_tokens"] if "input_tokens" in text else info["input_tokens"]
            yield prompt, info["response_metrics"]["output_tokens"], Fraction(record["start_time"])


def bench_rows(document):
    document = document[0] if isinstance(document, list) else document
    count = len(document["input_lens"])
    starts = document.get("start_times") or [None] * count
    errors = document.get("errors") or [""] * count
    for p, o, s, e in zip(document["input_lens"], document["output_lens"], starts, errors, strict=True):
        if not e:
            yield p, o, None if s is None else Fraction(s)


def guidellm_rows(document):
    for record in document["benchmarks"][0]["requests"]["successful"]:
        yield record["prompt_tokens"], record["output_tokens"], Fraction(record["request_start_time"])


def sharegpt_rows(document):
    for talk in document:
        turns = talk["conversations"]
        assert [turn["from"] for turn in turns] == ["human", "gpt"]
        yield *(len(turn["value"].split()) for turn in turns), None


JSON_ROWS = {
    "mooncake": each("input_length", "output_length", "timestamp", 1000),
    "bailian": each("input_length", "output_length", "timestamp"),
    "bailian-offline": each("input_length", "output_length"),
    "llmservingsim": each("input_toks", "output_toks", "arrival_time_ns", 10**9),
    "llmservingsim-run": each("input_toks", "output_toks", "arrival_time"),
    "distserve": each("prompt_len", "output_len", "start_time"),
    "llmperf": llmperf_rows,
    "inference-perf": lifecycle_rows,
    "vllm-bench": bench_rows,
    "sglang-bench": bench_rows,
    "guidellm": guidellm_rows,
    "aiperf": aiperf_rows,
    "sharegpt": sharegpt_rows,
}
PLAIN_ZEROS_REFUSED = {"llmservingsim"}


def agree(trace, rows, zeros_skipped):
    """Whether a trace is exactly the plain rows, sorted by time where there is one."""
    if zeros_skipped:
        rows = [row for row in rows if row[0] >= 1 and row[1] >= 1]
    if trace.arrival_s is not None:
        rows = sorted(rows, key=lambda row: row[2])
        first, last = rows[0][2], rows[-1][2]
        expected = np.array([float(row[2] - first) for row in rows])
        # A double holds an epoch second to 2.4e-7; a mutated, huge time to its own last place.
        np.testing.assert_allclose(trace.arrival_s, expected, rtol=1e-12, atol=5e-7 + 4e-16 * float(last))
    assert trace.prompt_tokens.tolist() == [row[0] for row in rows]
    assert trace.output_tokens.tolist() == [row[1] for row in rows]


def row_lists(longest):
    length = st.integers(1, longest)
    row = st.tuples(length, length, st.integers(0, 10**7))
    return st.lists(row, min_size=1, max_size=8)


@settings(max_examples=250 * EFFORT, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choice=st.data())
def test_valid_files_come_back_exactly(choice, samples, write):
    name = choice.draw(st.sampled_from(sorted(samples)))
    rows = choice.draw(row_lists(10**9 if name in FREE_LENGTHS else 40))
    sample = samples[name]
    text = sample.write(rows)
    if choice.draw(st.booleans()):
        text = text.replace("\n", choice.draw(st.sampled_from(["\r\n", "\r"] if sample.kind == "csv" else ["\r\n"])))
    content = text.encode("utf-8-sig" if choice.draw(st.booleans()) else "utf-8")
    path = write(gzip.compress(content) if choice.draw(st.booleans()) else content)
    trace = read_trace(path, **sample.options)
    assert trace.format == name
    assert (trace.arrival_s is None) == (not sample.arrivals)
    agree(trace, [(p, o, Fraction(ms, 1000)) for p, o, ms in rows], zeros_skipped=False)


NASTY = [
    "",
    "0",
    "-1",
    "1.5",
    "1e3",
    "1e999",
    "nan",
    "NaN",
    "Infinity",
    "null",
    "true",
    "XXX",
    " 7 ",
    "0x1F",
    "1_0",
    "+4",
]
NASTY += [
    "9" * 12,
    "9" * 22,
    '"',
    '""',
    '"5',
    "2024-05-10 00:00:01",
    "2024-05-10 00:00:01Z",
    "é",
    "\t",
    "\ufeff",
    "5,6",
    "[]",
]
BYTES = [bytes([b]) for b in b'0123456789,;.-+eE"\n\r\t :{}[]\\_Xx\x00\xff\xc3'] + [
    b"",
    b"\r\n",
    b"\xef\xbb\xbf",
    b'"\n"',
]


@st.composite
def byte_changes(draw, content):
    at = draw(st.integers(0, max(0, len(content) - 1)))
    cut = draw(st.integers(0, 2))
    return content[:at] + draw(st.sampled_from(BYTES)) + content[at + cut :]


@st.composite
def field_changes(draw, content):
    """Replace one field or value: what stands between two separators."""
    spans = [match.span() for match in re.finditer(rb"[^,;:\[\]{}\n]+", content)]
    start, end = draw(st.sampled_from(spans)) if spans else (0, 0)
    return content[:start] + draw(st.sampled_from(NASTY)).encode() + content[end:]


@st.composite
def row_changes(draw, content):
    rows = content.split(b"\n")
    i, j = (draw(st.integers(0, len(rows) - 1)) for _ in range(2))
    kind = draw(st.sampled_from(["drop", "twice", "swap", "halve", "blank"]))
    if kind == "drop":
        del rows[i]
    elif kind == "twice":
        rows.insert(j, rows[i])
    elif kind == "swap":
        rows[i], rows[j] = rows[j], rows[i]
    elif kind == "halve":
        rows[i] = rows[i][: len(rows[i]) // 2]
    else:
        rows.insert(i, draw(st.sampled_from([b"", b" ", b"\r", b","])))
    return b"\n".join(rows)


@st.composite
def column_changes(draw, content):
    """Drop, repeat or move a column of every row; on JSON this is one more odd change."""
    delimiter = b";" if b";" in content.split(b"\n")[0] else b","
    table = [row.split(delimiter) for row in content.split(b"\n")]
    width = max(map(len, table))
    i, j = (draw(st.integers(0, width - 1)) for _ in range(2))
    kind = draw(st.sampled_from(["drop", "twice", "move", "new"]))
    for row in table:
        if len(row) == width and width > 1:
            field = row[i]
            if kind in ("drop", "move"):
                del row[i]
            if kind in ("twice", "move"):
                row.insert(j, field)
            if kind == "new":
                row.insert(j, b"9" if row is not table[0] else b"extra")
    return b"\n".join(delimiter.join(row) for row in table)


CHANGES = [byte_changes, field_changes, row_changes, column_changes]


def damaged(choice, content):
    for _ in range(choice.draw(st.integers(1, 3))):
        content = choice.draw(choice.draw(st.sampled_from(CHANGES))(content))
    return content


def error_or_right(path, content, name, sample, plain, zeros_skipped):
    try:
        trace = read_trace(path, **sample.options)
    except InputError as problem:
        assert "\n" not in str(problem)
        event("refused")
        return
    event("read")
    assert sample.arrivals == (trace.arrival_s is not None) or trace.warnings
    # A header damaged beyond its format may still be read by its column names, where zeros are refused instead.
    agree(trace, plain(name, content), zeros_skipped)


@settings(max_examples=400 * EFFORT, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choice=st.data())
def test_damaged_csv_is_an_error_or_right(choice, samples, write):
    name = choice.draw(st.sampled_from(sorted(CSV_KEYS)))
    content = damaged(choice, samples[name].write(choice.draw(row_lists(2000))).encode())
    error_or_right(write(content), content, name, samples[name], plain_csv, name in SKIPS_ZEROS)


@settings(max_examples=400 * EFFORT, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choice=st.data())
def test_damaged_json_is_an_error_or_right(choice, samples, write):
    name = choice.draw(st.sampled_from(sorted(JSON_ROWS)))
    content = damaged(choice, samples[name].write(choice.draw(row_lists(12))).encode())
    error_or_right(write(content), content, name, samples[name], plain_json, name not in PLAIN_ZEROS_REFUSED)


@pytest.mark.parametrize("name", ["genai-perf", "burstgpt-replay", "guidellm"])
@settings(max_examples=60 * EFFORT, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choice=st.data())
def test_damaged_documents_give_no_other_exception(name, choice, samples, write):
    content = damaged(choice, samples[name].write(choice.draw(row_lists(5))).encode())
    try:
        trace = read_trace(write(content), **samples[name].options)
    except InputError as problem:
        assert "\n" not in str(problem)
    else:
        assert trace.prompt_tokens.min() >= 1 and trace.output_tokens.min() >= 1


@settings(max_examples=200 * EFFORT, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(content=b"\x1f\x8b")
@example(content=b"[")
@example(content=b"{}")
@example(content=b"[{}]\n{}")
@example(content=b"1,2,3,Gamma\n")
@example(content=b"\xef\xbb\xbf{")
def test_any_bytes_are_refused_in_one_line(content, write):
    with pytest.raises(InputError) as caught:
        read_trace(write(content))
    assert "\n" not in str(caught.value) and "\r" not in str(caught.value)

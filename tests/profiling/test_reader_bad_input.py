"""Bad files get one clear line: what was given, where, what was expected."""

from __future__ import annotations

import gzip
import json
import os

import pytest

from tileq_profiling.readers import read_trace
from tileq_theory.errors import InputError

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2023-11-16 18:17:03.9799600,4808,10\n"


def refused(path, *words, **options):
    with pytest.raises(InputError) as caught:
        read_trace(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


class TestFile:
    def test_missing(self, tmp_path):
        refused(tmp_path / "none.csv", "none.csv", "no such file")

    def test_directory(self, tmp_path):
        refused(tmp_path, "directory")

    def test_not_a_regular_file(self):
        refused(os.devnull, "not a regular file")

    @pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf", gzip.compress(b"")])
    def test_empty(self, content, write):
        refused(write(content), "empty")

    @pytest.mark.parametrize(
        ("content", "word"),
        [
            (b"PK\x03\x04rest", "zip"),
            (b"PAR1rest", "Parquet"),
            (b"\x28\xb5\x2f\xfdrest", "zstd"),
            ((HEAD + ROW).encode("utf-16"), "UTF-16"),
            (b"a,b\x00c\n1,2\n", "binary"),
            (HEAD.encode() + b"2023-11-16 18:17:03,4808,\xff\n", "UTF-8"),
            (HEAD.encode() + ROW.encode() * 4000 + b"\x00\n", "NUL"),
        ],
    )
    def test_binary_and_other_encodings(self, content, word, write):
        refused(write(content), word)

    @pytest.mark.parametrize("cut", [12, 40, -6])
    def test_damaged_gzip(self, cut, write):
        refused(write(gzip.compress((HEAD + ROW * 50).encode())[:cut]), "gzip")

    def test_header_only(self, write):
        refused(write(HEAD), "row 1", "no rows")
        refused(write(HEAD.strip()), "no rows")

    def test_unknown_format_says_what_was_seen(self, write):
        refused(write("alpha,beta\n1,2\n"), "alpha, beta", "azure-2023", "mooncake")
        refused(write('{"alpha": 1}\n{"alpha": 2}\n'), "JSON lines", "alpha", "azure-2023")
        refused(write('{"alpha": 1}'), "JSON document", "alpha")

    @pytest.mark.parametrize(
        "line",
        [
            "[2025-07-18 15:32:52 TP0] Prefill batch. #new-seq: 1, #new-token: 2192, #cached-token: 35",
            "[INFO] 12:00 start",
            "(EngineCore_DP0 pid=7) INFO 04-22 12:53:55 [core.py:359] Iteration(15769): 0 context requests",
        ],
    )
    def test_logs_are_not_taken_for_broken_json(self, line, write):
        refused(write(f"{line}\n{line}\n"), "no known format")

    def test_unknown_name_has_near_matches(self, write):
        refused(write(HEAD + ROW), "azure", "did you mean", format="azur-2023")

    def test_named_format_that_does_not_fit(self, write):
        refused(write(HEAD + ROW), "Request tokens", "ContextTokens", format="burstgpt")
        refused(write('{"a": 1}\n'), "CSV", format="burstgpt")
        refused(write(HEAD + ROW), format="mooncake")


class TestCsvRows:
    @pytest.mark.parametrize(
        "field",
        ["-3", "", "abc", "12.5", "NaN", "inf", "1e400", "0x1F", "1_000", "1,0", "9" * 30, "9" * 5000, "²", "+5"],
    )
    def test_field_that_is_no_length(self, field, write):
        quoted = f'"{field}"' if "," in field else field
        refused(
            write(HEAD + ROW * 3 + f"2023-11-16 18:17:03,{quoted},1\n" + ROW),
            "data.bin row 5",
            "ContextTokens",
            "whole",
        )

    @pytest.mark.parametrize(("field", "value"), [("12.0", 12), ("1e3", 1000), (" 7 ", 7), ("007", 7), ("120e-1", 12)])
    def test_field_that_is_whole(self, field, value, write):
        assert read_trace(write(HEAD + f"2023-11-16 18:17:03,{field},1\n")).prompt_tokens.tolist() == [value]

    def test_row_is_the_line_an_editor_shows(self, write):
        refused(write("\n\n" + HEAD + "\n" + ROW + "\n\r\n" + ROW + "2023-11-16 18:17:03,x,1\n"), "row 9", "'x'")
        refused(write("\n" + HEAD + '"2023-11-16 18:17:03","1","1"\n' + "2023-11-16 18:17:03,x,1\n"), "row 4", "'x'")

    @pytest.mark.parametrize("row", ["2023-11-16 18:17:03,1", "2023-11-16 18:17:03,1,2,3", "  "])
    def test_ragged(self, row, write):
        refused(write(HEAD + ROW + row + "\n" + ROW), "row 3", "fields", "expected 3")

    def test_stray_quotes_cannot_swallow_rows(self, write):
        rows = "2023-11-16 18:17:03,5,6\n"
        refused(write(HEAD + '"2023-11-16 18:17:03,5,6\n' + rows * 3))
        refused(write(HEAD + '"2023-11-16 18:17:03,5,6\n' + rows * 3 + '2023-11-16 18:17:03",5,6\n'))

    def test_zero_length_names_the_row_and_the_way_out(self, write):
        path = write(HEAD + ROW + "2023-11-16 18:17:03,5,0\n")
        refused(path, "row 3", "0 output tokens", "zeros='skip'", zeros="error")
        assert read_trace(path).skipped == (("0 output tokens (a request that failed)", 1),)
        lengths = "num_prefill_tokens,num_decode_tokens\n5,6\n0,6\n"
        refused(write(lengths), "row 3", "0 prompt tokens", "zeros='skip'")
        refused(write(HEAD + "2023-11-16 18:17:03,5,0\n"), "no usable request", "0 output tokens")

    def test_bad_row_far_down(self, write):
        refused(
            write(HEAD + ROW * 150_000 + "2023-11-16 18:17:03,5,-1\n" + ROW), "row 150002", "GeneratedTokens", "'-1'"
        )

    def test_negative_time(self, write):
        refused(
            write("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n-1,1,1\n"), "row 3", "arrived_at", "'-1'"
        )

    def test_huge_time(self, write):
        head = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n"
        refused(write(head + "9" * 25 + ",1,1\n"), "row 3", "arrived_at")
        refused(write(head + "1e999,1,1\n"), "row 3", "arrived_at")


class TestJsonLines:
    GOOD = {"timestamp": 0, "input_length": 5, "output_length": 6, "hash_ids": []}  # noqa: RUF012

    def write_second(self, write, text):
        return write(json.dumps(self.GOOD) + "\n\n" + text + "\n")

    @pytest.mark.parametrize(
        "value", ["-3", "0.5", "NaN", "Infinity", "1e400", '"5"', "true", "null", "[5]", "9" * 30, "9" * 5000]
    )
    @pytest.mark.parametrize("key", ["input_length", "output_length"])
    def test_value_that_is_no_length(self, key, value, write):
        text = json.dumps(self.GOOD).replace(f'"{key}": {self.GOOD[key]}', f'"{key}": {value}')
        refused(self.write_second(write, text), "line 3")

    @pytest.mark.parametrize("value", ["-3", "NaN", "Infinity", '"5"', "false", "null", "9" * 30])
    def test_value_that_is_no_time(self, value, write):
        text = json.dumps(self.GOOD).replace('"timestamp": 0', f'"timestamp": {value}')
        refused(self.write_second(write, text), "line 3", "timestamp")

    def test_missing_field(self, write):
        refused(self.write_second(write, '{"timestamp": 0, "input_length": 5}'), "line 3", "output_length")

    def test_truncated_line(self, write):
        refused(self.write_second(write, json.dumps(self.GOOD)[:-9]), "line 3", "JSON", "complete")

    def test_duplicate_key(self, write):
        text = json.dumps(self.GOOD)[:-1] + ', "input_length": 7}'
        refused(self.write_second(write, text), "line 3", "input_length", "twice")
        refused(write(text + "\n" + text), "input_length", "twice")
        refused(write("[" + text + "]"), "input_length", "twice")

    def test_not_an_object(self, write):
        refused(self.write_second(write, "[1, 2]"), "line 3", "object")

    def test_too_deep(self, write):
        refused(write("[" * 200_000), "data.bin")
        refused(self.write_second(write, '{"a":' * 200_000), "data.bin")

    def test_whole_floats(self, write):
        record = {**self.GOOD, "input_length": 12.0}
        assert read_trace(write(json.dumps(record))).prompt_tokens.tolist() == [12]

"""One contract for every reader: rows written in its format come back exactly, recognised by content alone."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from tileq_profiling.readers import read_trace, reader_names
from tileq_theory.errors import InputError

ROWS = [(12, 3, 500), (700, 41, 750), (5, 1, 1500), (64, 64, 1500), (9, 2, 61_250)]
NAMES = [
    "aiperf",
    "azure-2023",
    "azure-2024",
    "bailian",
    "bailian-offline",
    "burstgpt",
    "burstgpt-3",
    "burstgpt-replay",
    "csv",
    "distserve",
    "genai-perf",
    "guidellm",
    "inference-perf",
    "llmperf",
    "llmservingsim",
    "llmservingsim-run",
    "lmbenchmark",
    "mooncake",
    "nanoflow",
    "sarathi-run",
    "servegen",
    "sglang-bench",
    "sharegpt",
    "splitwise-sim",
    "vidur-arrivals",
    "vidur-lengths",
    "vllm-bench",
]


def check(trace, rows, sample):
    assert trace.prompt_tokens.tolist() == [row[0] for row in rows]
    assert trace.output_tokens.tolist() == [row[1] for row in rows]
    if sample.arrivals:
        # Epoch seconds as doubles are good to 2.4e-7 s; everything else is exact.
        expected = np.array([(row[2] - rows[0][2]) / 1000 for row in rows])
        np.testing.assert_allclose(trace.arrival_s, expected, rtol=0, atol=5e-7)
    else:
        assert trace.arrival_s is None


def test_every_reader_has_a_sample_and_a_summary(samples):
    assert sorted(reader_names()) == NAMES
    assert set(samples) == set(NAMES) - {"servegen"}  # distributions, not rows: tested on their own
    assert all(summary.strip() and "\n" not in summary for summary in reader_names().values())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "servegen"])
class TestContract:
    def test_read_back_and_recognised(self, name, samples, write):
        sample = samples[name]
        path = write(sample.write(ROWS))
        trace = read_trace(path, **sample.options)
        assert trace.format == name
        assert trace.source == f"data.bin ({name})"
        check(trace, ROWS, sample)
        check(read_trace(path, name, **sample.options), ROWS, sample)

    def test_one_request(self, name, samples, write):
        sample = samples[name]
        trace = read_trace(write(sample.write(ROWS[:1])), **sample.options)
        assert trace.format == name
        check(trace, ROWS[:1], sample)
        assert trace.rate_per_s is None and trace.interarrival_cv is None

    @pytest.mark.parametrize("dress", ["crlf", "bom", "gzip", "blank lines", "no final newline", "crlf bom gzip"])
    def test_dress_changes_nothing(self, name, dress, samples, write):
        sample = samples[name]
        text = sample.write(ROWS)
        if "blank" in dress:
            text = "\n" + text + "\n\n"
        if "no final" in dress:
            text = text.rstrip("\n")
        if "crlf" in dress:
            text = text.replace("\n", "\r\n")
        content = text.encode("utf-8-sig" if "bom" in dress else "utf-8")
        trace = read_trace(write(gzip.compress(content) if "gzip" in dress else content), **sample.options)
        assert trace.format == name
        check(trace, ROWS, sample)

    def test_requests_are_sorted_with_their_arrivals(self, name, samples, write):
        sample = samples[name]
        shuffled = [ROWS[i] for i in (4, 2, 0, 3, 1)]
        trace = read_trace(write(sample.write(shuffled)), **sample.options)
        # The two that share a time keep the file's order; without arrivals all do.
        check(trace, ROWS if sample.arrivals else shuffled, sample)
        assert any("order" in warning for warning in trace.warnings) == sample.arrivals

    def test_empty_of_requests(self, name, samples, write):
        sample = samples[name]
        with pytest.raises(InputError):
            read_trace(write(sample.write([])), **sample.options)

    def test_zero_output_is_refused_or_counted(self, name, samples, write):
        sample = samples[name]
        rows = [*ROWS[:2], (8, 0, 1000), *ROWS[2:]]
        path = write(sample.write(rows))
        trace = read_trace(path, zeros="skip", **sample.options)
        check(trace, ROWS, sample)
        assert sum(count for _, count in trace.skipped) == 1
        with pytest.raises(InputError, match="0 output tokens"):
            read_trace(path, zeros="error", **sample.options)

    def test_duplicate_key_or_column(self, name, samples, write):
        sample = samples[name]
        text = sample.write(ROWS)
        if sample.kind == "csv":
            delimiter = ";" if ";" in text else ","
            lines = text.splitlines()
            text = "\n".join(f"{line}{delimiter}{line}" for line in lines)
        else:
            text = text.replace("{", '{"k": 1, "k": 2, ', 1)
        with pytest.raises(InputError):
            read_trace(write(text), **sample.options)

    def test_truncated(self, name, samples, write):
        sample = samples[name]
        text = sample.write(ROWS).rstrip()
        # The last row loses a field, the last object its brace.
        cut = text.rindex(";" if ";" in text else ",") if sample.kind == "csv" else -1
        text = text[:cut]
        with pytest.raises(InputError):
            read_trace(write(text), **sample.options)

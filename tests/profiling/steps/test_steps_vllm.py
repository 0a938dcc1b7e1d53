"""vLLM's iteration log: what was written comes back, and what was lost is counted."""

from __future__ import annotations

import gzip
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
import step_logs as logs
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_profiling.steps import read_profile, read_profile_parts, read_run
from tileq_theory.errors import InputError

STEP = st.builds(
    logs.Iteration,
    number=st.integers(0, 10**6),
    context_requests=st.integers(0, 4),
    context_tokens=st.integers(0, 8192),
    requests=st.integers(0, 256),
    tokens=st.integers(0, 300),
    hundredths_ms=st.integers(0, 10**6),
    pid=st.sampled_from([17, 18]),
    engine=st.sampled_from([0, 1]),
    dummy=st.booleans(),
    usage=st.none() | st.integers(0, 1000),
)


def expected(steps):
    """Rows by (engine, pid), in order, as the specification has them; written apart from the reader."""
    rows, last = {}, {}
    for step in steps:
        key = {"engine": str(step.engine), "pid": str(step.pid)}
        name = tuple(sorted(key.items()))
        told = (
            step.number,
            step.context_requests,
            step.context_tokens,
            step.requests,
            step.tokens,
            step.ms,
            step.dummy,
            step.usage,
        )
        if last.get(name) == told:
            continue
        last[name] = told
        if not step.dummy and step.context_tokens + step.tokens and step.hundredths_ms:
            rows.setdefault(name, []).append(
                (
                    step.context_tokens + step.tokens,
                    step.context_tokens,
                    step.context_requests + step.requests,
                    step.hundredths_ms / 1e5,
                )
            )
    return rows


def found(path):
    rows = {}
    for part in read_profile_parts(path).parts:
        p = part.profile
        rows[tuple(sorted(part.labels.items()))] = list(
            zip(p.tokens.tolist(), p.prefill_tokens.tolist(), p.sequences.tolist(), p.seconds.tolist(), strict=True)
        )
    return rows


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=30), noise=st.lists(st.integers(0, 5), min_size=30, max_size=30))
def test_what_was_written_comes_back(steps, noise):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_text(logs.interleaved([logs.vllm_line(s) for s in steps], noise[: len(steps)]))
        want = expected(steps)
        if not want:
            with pytest.raises(InputError, match="no usable iteration"):
                read_profile_parts(path)
            return
        got = found(path)
        assert got.keys() == want.keys()
        for key in want:
            np.testing.assert_allclose(np.array(got[key]), np.array(want[key]), rtol=1e-12)


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        STEP.filter(lambda s: not s.dummy and s.context_tokens and s.hundredths_ms),
        min_size=2,
        max_size=8,
        unique_by=lambda s: s.number,
    ),
    cut=st.floats(0, 1, exclude_max=True),
    data=st.data(),
)
def test_an_overwritten_line_is_lost_alone_and_counted(steps, cut, data):
    """One line is cut anywhere after its marker; the next process writes on in the same line."""
    victim = data.draw(st.integers(0, len(steps) - 2))
    lines = [logs.vllm_line(s) for s in steps]
    start = lines[victim].index("Iteration(") + len("Iteration(")
    lines[victim] = lines[victim][: start + int(cut * (len(lines[victim]) - start))]
    whole = lines[victim].endswith(" ms")
    text = "\n".join(lines[: victim + 1]) + "\n".join(["", *lines[victim + 1 :]])[1:] + "\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_text(text)
        reading = read_profile_parts(path)
    got = sorted(
        (t, s) for part in reading.parts for t, s in zip(part.profile.tokens, part.profile.seconds, strict=True)
    )
    kept = [s for i, s in enumerate(steps) if i != victim or whole]
    want = sorted((float(s.context_tokens + s.tokens), s.hundredths_ms / 1e5) for s in kept)
    assert [t for t, _ in got] == [t for t, _ in want]
    np.testing.assert_allclose([s for _, s in got], [s for _, s in want], rtol=1e-12)
    told = [line for line in reading.left_out if "truncated" in line]
    assert told == ([] if whole else ["1 truncated or overwritten iteration lines"])


def test_engines_stay_apart_and_can_be_chosen(write):
    steps = [logs.Iteration(i, 1, 100 + i, 2, 2, 1000 + i, engine=i % 2, pid=10 + i % 2) for i in range(6)]
    path = write("\n".join(map(logs.vllm_line, steps)))
    both = read_profile(path)
    assert len(both) == 6
    assert any("2 engines read together" in note for note in both.conditions.notes)
    one = read_profile(path, where={"engine": "1"})
    assert one.tokens.tolist() == [103.0, 105.0, 107.0]
    with pytest.raises(InputError, match="no measurement has engine=7; the file holds: engine=0, pid=10"):
        read_profile(path, where={"engine": "7"})


def test_dummies_and_idle_steps_are_counted(write):
    steps = [
        logs.Iteration(0, 1, 64, 0, 0, 2000, usage=10),
        logs.Iteration(1, 0, 0, 1, 1, 900, usage=10, dummy=True),
        logs.Iteration(2, 0, 0, 0, 0, 5, usage=10),
    ]
    reading = read_profile_parts(write("\n".join(map(logs.vllm_line, steps))))
    assert reading.left_out == ("1 dummy iterations (a rank without work of its own)", "1 iterations without tokens")
    assert reading.choose().conditions.notes[-1] != ""


def test_kv_tokens_from_usage_and_the_size_told_at_start_up(write):
    head = "INFO 04-22 12:53:00 [kv_cache_utils.py:1229] GPU KV cache size: 41,408 tokens\n"
    steps = [logs.Iteration(0, 0, 0, 10, 10, 2000, usage=250), logs.Iteration(1, 1, 400, 10, 10, 4000, usage=260)]
    text = "\n".join(map(logs.vllm_line, steps))
    told = read_profile(write(head + text))
    np.testing.assert_allclose(told.kv_tokens, [0.25 * 41408, 0.26 * 41408 - 400])
    untold = read_profile(write(text))
    assert set(untold.unknown) == {"pairs", "kv_tokens"}
    assert any("kv_capacity_tokens=" in note for note in untold.conditions.notes)
    np.testing.assert_allclose(read_profile(write(text), kv_capacity_tokens=1000).kv_tokens, [250.0, 0.0])


def test_start_up_tells_the_conditions(write):
    head = (
        "INFO 04-22 12:53:00 [core.py:77] Initializing a V1 LLM engine (v0.19.0) with config: "
        "model='meta-llama/Llama-3.1-8B', dtype=torch.bfloat16, tensor_parallel_size=2, kv_cache_dtype=auto\n"
    )
    profile = read_profile(write(head + logs.vllm_line(logs.Iteration(0, 1, 64, 0, 0, 2000)) + "\n"))
    c = profile.conditions
    assert (c.model, c.tp, c.dtype, c.kv_dtype, dict(c.libraries)) == (
        "llama-3.1-8b", 2, "bf16", None, {"vllm": "0.19.0"},
    )  # fmt: skip


@pytest.mark.parametrize("wrap", ["docker", "gzip", "late", "windows"])
def test_the_log_may_be_wrapped(write, wrap):
    line = logs.vllm_line(logs.Iteration(3, 1, 64, 2, 2, 2150))
    if wrap == "docker":
        content: str | bytes = (
            '{"log":"' + line + '\\n","stream":"stderr"}\n' + '{"log":"other\\n","stream":"stderr"}\n'
        )
    elif wrap == "gzip":
        content = gzip.compress((line + "\n").encode())
    elif wrap == "late":
        content = "INFO loading weights, and much more of it\n" * 20000 + line + "\n"
    else:
        content = line + "\r\n"
    profile = read_profile(write(content))
    assert (profile.tokens.tolist(), profile.seconds.tolist()) == ([66.0], [0.0215])


def test_a_log_written_twice_is_read_once(write):
    steps = [logs.Iteration(i, 1, 64, 2, 2, 2150) for i in range(3)]
    text = "".join(2 * (logs.vllm_line(s) + "\n") for s in steps)
    reading = read_profile_parts(write(text))
    assert len(reading.choose()) == 3
    assert reading.left_out == ("3 repeated lines (the log was written twice)",)


def test_undecodable_bytes_between_lines_do_no_harm(write):
    line = logs.vllm_line(logs.Iteration(3, 1, 64, 2, 2, 2150)).encode()
    assert len(read_profile(write(line + b"\n\xff\xfe\x9c broken\n" + line.replace(b"(3)", b"(4)")))) == 2


def test_memory_is_bounded_and_the_share_of_phases_kept(write):
    rng = random.Random(1)
    lines = []
    for i in range(40_000):
        mixed = rng.random() < 0.1
        lines.append(logs.vllm_line(logs.Iteration(i, int(mixed), 512 * mixed, 8, 8, 1000 + i % 7)))
    profile = read_profile(write("\n".join(lines)), max_rows=2000)
    assert 1000 <= len(profile) <= 4000
    share = float(np.mean(profile.prefill_tokens > 0))
    # binomial at n >= 1000 rows: 6 standard deviations, false alarm below 1e-8
    assert abs(share - 0.1) < 6 * np.sqrt(0.1 * 0.9 / 1000)
    assert any("drawn at random" in note for note in profile.conditions.notes)


def test_milliseconds_taken_for_seconds_are_questioned(write):
    """A tool that logged seconds under the name of milliseconds: 20 s steps read as 20 ms pass, 0.02 'ms' do not."""
    steps = [logs.Iteration(i, 1, 512, 8, 8, 2 + i % 2) for i in range(20)]  # .02 ms for 520 tokens
    notes = read_profile(write("\n".join(map(logs.vllm_line, steps)))).conditions.notes
    assert any("divided by 1000" in note for note in notes)


def test_one_regime_is_named(write):
    decode = [logs.Iteration(i, 0, 0, 4 + i, 4 + i, 2000) for i in range(5)]
    notes = read_profile(write("\n".join(map(logs.vllm_line, decode)))).conditions.notes
    assert any(note.startswith("only decode batches") for note in notes)


def test_a_stats_log_gives_its_path_and_says_why_it_has_no_steps(write):
    busy = [logs.stats_v1(10 * i, 500.0, 100.0 + i, 3 + i, 2, 10.0 + i) for i in range(4)]
    path = write("\n".join(busy))
    with pytest.raises(InputError, match="--enable-logging-iteration-details"):
        read_profile(path)
    run = read_run(path)
    (series,) = run.series
    assert series.t_s.tolist() == [0.0, 10.0, 20.0, 30.0]
    assert series.running.tolist() == [3.0, 4.0, 5.0, 6.0]
    np.testing.assert_allclose(series.kv_usage, [0.10, 0.11, 0.12, 0.13])
    assert series.engine == "engine 0 pid 7"


def test_steady_intervals_give_the_mean_decode_step_exactly(write):
    """10 requests decode; each step of 25 ms makes 10 tokens: 400 tokens/s."""
    lines = [logs.stats_v1(0, 800.0, 50.0, 10, 0, 20.0)]
    lines += [logs.stats_v1(10 * i, 0.0, 400.0, 10, 0, 20.0 + i) for i in (1, 2)]
    lines += [logs.stats_v1(30, 0.0, 390.0, 9, 0, 20.0)]  # one left: the batch changed
    head = "GPU KV cache size: 10,000 tokens\n"
    profile = read_profile(write(head + "\n".join(lines)))
    np.testing.assert_allclose(profile.seconds, [0.025, 0.025])
    np.testing.assert_allclose(profile.kv_tokens, [2050.0, 2150.0])
    assert np.all(profile.phase == "decode")


def test_v0_stats_swapped_requests_wait_and_preemptions_add_over_restarts(write):
    warning = (
        "WARNING 04-22 12:00:05 scheduler.py:1481] Sequence group 221 is preempted by PreemptionMode.RECOMPUTE mode "
        "because there is not enough KV cache space. This can affect ... total_num_cumulative_preemption={}"
    )
    lines = [
        logs.stats_v0(0, 1.0, 2.0, 5, 2, 7, 50.0),
        warning.format(1),
        warning.format(51),
        warning.format(1),
        logs.stats_v0(5, 0.0, 2.0, 5, 0, 0, 60.0),
    ]
    run = read_run(write("\n".join(lines)))
    assert run.series[0].waiting.tolist() == [9.0, 0.0]
    assert run.preemptions == 52


def test_two_engines_have_two_series_and_the_turn_of_the_year_is_mended(write):
    lines = []
    for engine in (0, 1):
        first = logs.stats_v1(0, 1.0, 2.0, 5, 2, 7.0, engine).replace("04-22 12:00:00", "12-31 23:59:55")
        second = logs.stats_v1(0, 1.0, 2.0, 5, 2, 7.0, engine).replace("04-22 12:00:00", "01-01 00:00:05")
        lines.append((first, second))
    run = read_run(write("\n".join([lines[0][0], lines[1][0], lines[0][1], lines[1][1]])))
    assert [series.t_s.tolist() for series in run.series] == [[0.0, 10.0], [0.0, 10.0]]
    assert not any("before" in warning for warning in run.warnings)

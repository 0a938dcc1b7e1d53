"""The traps of each format: units, clocks, zones, inserted columns, spaces, failures, details not recorded."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tileq_profiling.readers import read_trace
from tileq_theory.errors import InputError

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def refused(path, *words, **options):
    with pytest.raises(InputError) as caught:
        read_trace(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message
    return message


class TestAzure:
    def test_seven_digits_are_not_lost(self, write):
        text = AZURE + "2023-11-16 18:17:03.9799600,5,1\n2023-11-16 18:17:03.9799601,5,1\n"
        assert read_trace(write(text)).arrival_s.tolist() == [0.0, 1e-7]

    def test_zones_are_one_time_line(self, write):
        text = AZURE + "2024-05-10 00:00:00+00:00,5,1\n2024-05-10 02:00:01.5+02:00,6,1\n2024-05-10T00:00:02Z,7,1\n"
        text += "2024-05-10 05:30:03+0530,8,1\n"
        trace = read_trace(write(text))
        assert trace.format == "azure-2024"
        assert trace.arrival_s.tolist() == [0.0, 1.5, 2.0, 3.0]

    def test_zoned_and_naive_are_not_mixed(self, write):
        text = AZURE + "2024-05-10 00:00:00+00:00,5,1\n2024-05-10 00:00:01,6,1\n"
        refused(write(text), "row 3", "TIMESTAMP", "same kind of time zone")
        text = AZURE + "2024-05-10 00:00:00,5,1\n2024-05-10 00:00:01+00:00,6,1\n"
        refused(write(text), "row 3", "TIMESTAMP")

    def test_xxx_then_a_time_and_the_reverse(self, write):
        refused(write(AZURE + "XXX,5,1\n2024-05-10 00:00:01,6,1\n"), "row 3", "TIMESTAMP", "XXX")
        refused(write(AZURE + "2024-05-10 00:00:01,5,1\nXXX,6,1\n"), "row 3", "TIMESTAMP", "'XXX'")

    @pytest.mark.parametrize("time", ["2024-02-30 00:00:00", "2024-05-10", "1715299200", "", "24/05/10 00:00:00"])
    def test_what_is_no_time(self, time, write):
        refused(write(AZURE + "2024-05-10 00:00:01,5,1\n" + time + ",6,1\n"), "row 3", "TIMESTAMP", repr(time))

    def test_columns_are_addressed_by_name(self, write):
        text = "GeneratedTokens,model,TIMESTAMP,ContextTokens\n7,m,2024-05-10 00:00:00,11\n"
        trace = read_trace(write(text))
        assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([11], [7])

    def test_quoted_fields(self, write):
        text = '"TIMESTAMP","ContextTokens","GeneratedTokens"\n"2024-05-10 00:00:00","11","7"\n'
        trace = read_trace(write(text))
        assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([11], [7])


class TestBurstGpt:
    def test_failures_are_skipped_and_counted(self, write):
        text = (
            BURST
            + "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,10,0,10,API log\n50.5,GPT-4,0,0,0,API log\n"
            + "60,GPT-4,9,9,18,API log\n"
        )
        trace = read_trace(write(text))
        assert trace.prompt_tokens.tolist() == [472, 9]
        assert trace.arrival_s.tolist() == [0.0, 55.0]
        assert sum(count for _, count in trace.skipped) == 2
        assert trace.label("Model").of(1) == "GPT-4"
        assert trace.label("Log Type").values == ("Conversation log", "API log")

    def test_version_3_inserts_two_columns(self, write):
        text = (
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            "5,s1,3.5,ChatGPT,472,18,490,Conversation log\n6,,,GPT-4,10,4,14,API log\n"
        )
        trace = read_trace(write(text))
        assert trace.format == "burstgpt-3"
        assert trace.prompt_tokens.tolist() == [472, 10]
        assert [trace.label("Session ID").of(i) for i in range(2)] == ["s1", ""]

    def test_replay_counts_characters(self, samples, write):
        path = write(samples["burstgpt-replay"].write([(5, 6, 0)]))
        refused(path, "out_len", "chars_per_token")
        assert read_trace(path, chars_per_token=8).output_tokens.tolist() == [3]
        refused(path, "chars_per_token", chars_per_token=0.0)

    def test_replay_arrival_is_before_completion(self, write):
        events = {
            str(i): {"event_id": i, "in_len": 5, "out_len": 10, "record_time": end, "total_chunk_time": took}
            for i, end, took in ((1, 12.0, 1.0), (0, 15.0, 5.0))
        }
        trace = read_trace(write(json.dumps(events)), chars_per_token=1)
        assert trace.arrival_s.tolist() == [0.0, 1.0]  # 10 s and 11 s, though written in the other order


class TestVidurAndSplitwise:
    def test_spaces_after_commas(self, write):
        trace = read_trace(write("num_prefill_tokens, num_decode_tokens\n 74,  918\n290, 905 \n"))
        assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([74, 290], [918, 905])

    def test_batches_of_several_are_refused(self, samples, write):
        text = samples["splitwise-sim"].write([(5, 6, 0), (7, 8, 9)])
        assert read_trace(write(text)).count == 2
        refused(write(text.replace(",1,7,8", ",4,7,8")), "row 3", "batch_size", "4")

    def test_sarathi_floats_that_are_whole(self, write):
        head = "Request Id,request_num_prefill_tokens,request_num_decode_tokens\n"
        assert read_trace(write(head + "0,74.0,9e1\n")).output_tokens.tolist() == [90]
        refused(write(head + "0,74.5,9\n"), "row 2", "request_num_prefill_tokens", "'74.5'")


class TestPrefixTraces:
    RECORD = {"timestamp": 27_482, "input_length": 6758, "output_length": 52, "hash_ids": [46, 47]}  # noqa: RUF012

    def test_mooncake_is_milliseconds_and_bailian_seconds(self, write):
        second = {**self.RECORD, "timestamp": 30_482}
        chat = {"chat_id": 0, "parent_chat_id": -1, "turn": 1, "type": "text"}
        mooncake = read_trace(write(lines(self.RECORD, second)))
        bailian = read_trace(write(lines({**self.RECORD, **chat}, {**second, **chat, "chat_id": 1})))
        assert (mooncake.format, mooncake.duration_s) == ("mooncake", 3.0)
        assert (bailian.format, bailian.duration_s) == ("bailian", 3000.0)
        assert (mooncake.blocks.block_tokens, bailian.blocks.block_tokens) == (512, 16)

    def test_without_the_chat_identity_it_is_not_taken_for_milliseconds(self, write):
        record = {**self.RECORD, "parent_chat_id": -1, "turn": 1}
        refused(write(lines(record, record)), "no known format")

    def test_blocks_stay_with_their_requests(self, write):
        records = [
            {**self.RECORD, "timestamp": 2000, "hash_ids": [1, 2, 3]},
            {**self.RECORD, "timestamp": 1000, "hash_ids": []},
            {**self.RECORD, "timestamp": 500, "hash_ids": [9]},
        ]
        blocks = read_trace(write(lines(*records))).blocks
        assert [blocks.of(i).tolist() for i in range(3)] == [[9], [], [1, 2, 3]]

    @pytest.mark.parametrize("ids", ["12", [1, "2"], [1.5], [True], {"a": 1}, None, [2**63]])
    def test_block_identities_are_whole_numbers(self, ids, write):
        refused(write(lines(self.RECORD, {**self.RECORD, "hash_ids": ids})), "line 2", "hash_ids")

    def test_quantised_arrivals_are_told_and_spread(self, write):
        records = [{**self.RECORD, "timestamp": 3000 * (i // 10)} for i in range(100)]
        trace = read_trace(write(lines(*records)))
        assert any("quantised to about 3 s" in warning for warning in trace.warnings)
        spread = trace.spread_arrivals(seed=1)
        assert np.unique(spread.arrival_s).size == 100
        assert spread.duration_s == pytest.approx(30.0, abs=3.0)
        assert spread.prompt_tokens is trace.prompt_tokens

    def test_conversations_follow_their_parents(self, write):
        chats = [(10, -1), (11, 10), (12, -1), (13, 11), (14, 99)]
        records = [
            {**self.RECORD, "timestamp": i, "chat_id": c, "parent_chat_id": p, "type": "text", "turn": 1}
            for i, (c, p) in enumerate(chats)
        ]
        label = read_trace(write(lines(*records))).label("conversation")
        assert [label.of(i) for i in range(5)] == ["10", "10", "12", "10", "99"]


class TestLlmServingSim:
    def test_two_clocks(self, samples, write):
        rows = [(5, 6, 0), (7, 8, 2500)]
        text = samples["llmservingsim-run"].write(rows)
        assert read_trace(write(text)).duration_s == pytest.approx(2.5, abs=1e-6)

    def test_token_identities_agree_with_the_length(self, write):
        record = {"input_toks": 3, "output_toks": 2, "arrival_time_ns": 0, "input_tok_ids": [1, 2, 3]}
        assert read_trace(write(lines(record, record))).count == 2
        refused(write(lines(record, {**record, "input_toks": 4})), "line 2", "input_tok_ids", "3 tokens")

    def test_sessions_have_lengths_but_no_open_arrivals(self, write):
        parts = [{"input_toks": 3, "output_toks": 2, "tool_duration_ns": 5}, {"input_toks": 9, "output_toks": 4}]
        session = {"session_id": "a", "arrival_time_ns": 10, "sub_requests": parts}
        trace = read_trace(write(lines(session, {**session, "session_id": "b"})))
        assert trace.prompt_tokens.tolist() == [3, 9, 3, 9]
        assert trace.arrival_s is None
        assert trace.label("session_id").values == ("a", "b")


class TestBenchmarks:
    RUN = {  # noqa: RUF012
        "completed": 2,
        "failed": 0,
        "duration": 1.0,
        "total_input_tokens": 9,
        "total_output_tokens": 9,
        "tokenizer_id": "t",
    }
    LISTS = {"input_lens": [4, 5], "output_lens": [6, 3]}  # noqa: RUF012

    def test_totals_name_the_flag(self, write):
        refused(write(json.dumps(self.RUN)), "--save-detailed")
        sglang = {**self.RUN, "dataset_name": "random"}
        del sglang["tokenizer_id"]
        refused(write(json.dumps({**sglang, "request_rate": float("inf")}) + "\n"), "--output-details")
        refused(write(json.dumps([{**self.RUN, "run_number": 0}])), "sweep", "--save-detailed")

    def test_all_failed(self, write):
        refused(write(json.dumps({**self.RUN, **self.LISTS, "completed": 0, "failed": 8})), "8 failed")

    def test_old_result_without_start_times(self, write):
        trace = read_trace(write(json.dumps({**self.RUN, **self.LISTS, "request_rate": None})))
        assert trace.arrival_s is None
        assert any("no start_times" in warning for warning in trace.warnings)

    def test_failed_requests_are_counted(self, write):
        run = {
            **self.RUN,
            "input_lens": [4, 5, 6],
            "output_lens": [0, 3, 2],
            "errors": ["", "", "timed out"],
            "start_times": [1.0, 2.0, 3.0],
        }
        trace = read_trace(write(json.dumps(run)))
        assert trace.prompt_tokens.tolist() == [5]
        assert sum(count for _, count in trace.skipped) == 2

    def test_lists_of_different_length(self, write):
        refused(
            write(json.dumps({**self.RUN, "input_lens": [4], "output_lens": [6, 3]})), "input_lens 1", "output_lens 2"
        )

    def test_several_runs_need_a_choice(self, write):
        other = {**self.RUN, "input_lens": [40, 50], "output_lens": [60, 30]}
        path = write(lines({**self.RUN, **self.LISTS}, other))
        refused(path, "2 runs", "run=1..2")
        assert read_trace(path, run=2).prompt_tokens.tolist() == [40, 50]
        refused(path, "run=3", run=3)

    def test_bare_infinity_as_a_length_is_refused(self, write):
        refused(
            write(json.dumps({**self.RUN, **self.LISTS, "input_lens": [4, float("inf")]})), "request 2", "input_lens"
        )


class TestLoadGenerators:
    def test_guidellm_lists_may_be_empty(self, samples, write):
        report = json.loads(samples["guidellm"].write([(5, 6, 0)]))
        report["benchmarks"][0]["requests"]["successful"] = []
        refused(write(json.dumps(report)), "empty")

    def test_guidellm_sample_is_told(self, samples, write):
        report = json.loads(samples["guidellm"].write([(5, 6, 0), (7, 8, 1)]))
        report["benchmarks"][0]["metrics"]["request_totals"]["successful"] = 50
        report["benchmarks"][0]["requests"]["errored"] = [{}]
        trace = read_trace(write(json.dumps(report)))
        assert any("2 of 50" in warning for warning in trace.warnings)
        assert trace.skipped == (("errored requests", 1),)

    def test_guidellm_older_and_raw_places(self, samples, write):
        report = json.loads(samples["guidellm"].write([(5, 6, 0)]))
        report["benchmarks"][0]["requests"]["successful"] = [
            {
                "input_metrics": {"text_tokens": 5},
                "output_metrics": {"total_tokens": 6},
                "info": {"timings": {"request_start": 9.5}},
            },
            {"prompt_tokens": 7, "output_tokens": 8, "start_time": 11.5},
        ]
        trace = read_trace(write(json.dumps(report)))
        assert (trace.prompt_tokens.tolist(), trace.arrival_s.tolist()) == ([5, 7], [0.0, 2.0])

    def test_aiperf_leaves_out_what_failed(self, samples, write):
        records = [json.loads(line) for line in samples["aiperf"].write([(5, 6, 0), (7, 8, 2), (9, 1, 4)]).splitlines()]
        records[0]["metadata"]["benchmark_phase"] = "warmup"
        records[2] = {
            "metadata": {"request_start_ns": 1, "was_cancelled": True},
            "metrics": {"error_isl": {"value": 550, "unit": "tokens"}},
            "error": {"code": 499},
        }
        trace = read_trace(write(lines(*records)))
        assert trace.prompt_tokens.tolist() == [7]
        assert sorted(trace.skipped) == [("cancelled", 1), ("warm-up", 1)]

    def test_aiperf_unit_is_checked(self, samples, write):
        text = samples["aiperf"].write([(5, 6, 0), (7, 8, 2)])
        refused(write(text.replace('"unit": "tokens"', '"unit": "chars"', 1)), "line 1", "unit")

    def test_totals_name_the_file_to_pass(self, write):
        refused(write(json.dumps({"request_latency": {"unit": "ms", "avg": 1, "p99": 2}})), "profile_export.jsonl")
        refused(write(json.dumps({"load_summary": {}, "successes": {}, "failures": {}})), "per_request")
        refused(write(json.dumps({"num_concurrent_requests": 1, "results_ttft_s_mean": 2})), "individual_responses")

    def test_errors_are_counted(self, write):
        good = {"error_code": None, "number_input_tokens": 5, "number_output_tokens": 6}
        bad = {"error_code": 500, "number_input_tokens": None, "number_output_tokens": None}
        trace = read_trace(write(json.dumps([good, bad])))
        assert (trace.count, trace.skipped[0][1]) == (1, 1)
        good = {"start_time": 1.0, "end_time": 2.0, "info": {"input_tokens": 5, "output_tokens": 6}, "error": None}
        bad = {"start_time": 1.5, "end_time": 2.0, "info": {}, "error": {"error_type": "Timeout"}}
        trace = read_trace(write(json.dumps([good, bad])))
        assert (trace.prompt_tokens.tolist(), trace.skipped[0][1]) == ([5], 1)


class TestText:
    def test_tokenizer_is_asked_for(self, samples, write):
        for name in ("sharegpt", "genai-perf"):
            refused(write(samples[name].write([(5, 6, 0)])), "count_tokens")

    def test_first_exchange_of_a_conversation(self, write):
        turns = [{"from": "system", "value": "a"}, {"from": "gpt", "value": "b"}, {"from": "human", "value": "c d"}]
        turns += [{"from": "gpt", "value": "e f g"}, {"from": "human", "value": "h"}]
        talk = [{"id": "1", "conversations": turns}, {"id": "2", "conversations": turns[:2]}]
        trace = read_trace(write(json.dumps(talk)), count_tokens=lambda text: len(text.split()))
        assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([2], [3])
        assert trace.skipped[0][1] == 1

    @pytest.mark.parametrize("count", [lambda text: 1.5, lambda text: float("nan"), lambda text: -1])
    def test_a_tokenizer_that_does_not_count(self, count, samples, write):
        refused(write(samples["sharegpt"].write([(5, 6, 0)])), "count_tokens", count_tokens=count)

    def test_triton_payloads(self, write):
        request = {"timestamp": 5, "request_inputs": {"text_input": "a b"}, "response_outputs": [{"text_output": "c"}]}
        path = write(json.dumps({"experiments": [{"requests": [request]}]}))
        trace = read_trace(path, count_tokens=lambda text: len(text.split()))
        assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([2], [1])


class TestServeGen:
    DATA = {  # noqa: RUF012
        "0": {"input_tokens": "{}", "output_tokens": "{}"},
        "600": {"input_tokens": "{100: 0.25, 300: 0.75}", "output_tokens": "{10: 0.5, 20: 0.5}"},
        "1200": {"input_tokens": "{50.0: 1.0}", "output_tokens": "{7: 1.0}"},
    }

    def test_sample_has_the_moments_of_the_laws(self, write):
        trace = read_trace(write(json.dumps(self.DATA)), run=1)
        assert trace.format == "servegen"
        assert trace.prompt_tokens.mean() == 250.0
        assert trace.output_tokens.mean() == 15.0
        # Independent as ServeGen draws them: the correlation of 10 000 shuffled pairs is within 5/100.
        assert abs(np.corrcoef(trace.prompt_tokens, trace.output_tokens)[0, 1]) < 0.05
        assert any("distributions" in warning for warning in trace.warnings)

    def test_all_windows_alike(self, write):
        trace = read_trace(write(json.dumps(self.DATA)))
        assert trace.prompt_tokens.mean() == 150.0
        assert trace.arrival_s is None

    @pytest.mark.parametrize(
        "law", ["{100: 0.5, 100: 0.5}", "{1.5: 1.0}", "{-1: 1.0}", "{100: -1}", "__import__('os')", "[1]", "{100: 0}"]
    )
    def test_what_is_no_law(self, law, write):
        data = {"0": {"input_tokens": law, "output_tokens": "{7: 1.0}"}}
        refused(write(json.dumps(data)), "window 0", "input_tokens")

    def test_rates_alone(self, write):
        refused(write("0,1.5,0.8,Gamma,2.0,300\n600,1.0,0.8,Weibull,2.0,300\n"), "ServeGen", "dataset.json")


class TestAnyCsv:
    @pytest.mark.parametrize(
        ("name", "per_s"),
        [("arrival_s", 1), ("Arrival (ms)", 1e3), ("timestamp_us", 1e6), ("start time [ns]", 1e9), ("time_sec", 1)],
    )
    def test_units_in_the_name(self, name, per_s, write):
        trace = read_trace(write(f"{name},prompt_len,output_len\n0,5,6\n3000,7,8\n"))
        assert trace.format == "csv"
        assert trace.duration_s == pytest.approx(3000 / per_s, rel=1e-15)
        assert any("column names" in warning for warning in trace.warnings)

    def test_a_unit_is_never_guessed(self, write):
        refused(write("timestamp,prompt_len,output_len\n0,5,6\n"), "timestamp", "no unit", "timestamp_ms")

    def test_times_need_no_unit(self, write):
        text = "timestamp\tprompt_len\toutput_len\n2024-05-10 00:00:00\t5\t6\n2024-05-10 00:01:00\t5\t6\n"
        assert read_trace(write(text)).duration_s == 60.0

    def test_two_candidates_are_refused(self, write):
        refused(write("prompt_len,input_tokens,output_len\n1,5,6\n"), "several prompt-length columns")
        refused(write("arrival_s,start_time_s,prompt_len,output_len\n1,5,6,7\n"), "several time columns")

    def test_lengths_without_arrivals_are_told(self, write):
        trace = read_trace(write("isl,osl\n5,6\n"))
        assert trace.arrival_s is None
        assert any("no arrival column" in warning for warning in trace.warnings)

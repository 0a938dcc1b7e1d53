"""Every number of section 3 to its printed digits, and further instances recomputed by rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.closed_forms import closed_form
from tileq_theory.closed_forms.dai import best_tiles
from tileq_theory.closed_forms.wait import wait_fluid
from tileq_theory.errors import InputError


def printed(value: float, text: str) -> None:
    """Assert that `value` rounds to the digits printed in `text`."""
    decimals = len(text.partition(".")[2])
    assert f"{value:.{decimals}f}" == text


# ---------------------------------------------------------------------- RAD

RAD_MODEL = {"t_lin_s": "0.004", "t_nl_s": "0.000005", "b_col_tokens": 128}
RAD_OUTPUT = math.fsum(math.exp(-j / 200) for j in range(512))  # E[O] from the survival function


def test_rad_reference_instance() -> None:
    mean_output = closed_form("capped_exponential_mean").evaluate(mean_tokens=200, cap_tokens=512)
    assert mean_output == pytest.approx(RAD_OUTPUT, rel=1e-14)
    printed(mean_output, "185.00078")
    demand = {"prefill_tokens": 576, "decode_tokens": mean_output}  # P = 128*U{1..8}
    printed(1e6 * closed_form("rad_token_time").evaluate(**RAD_MODEL), "36.25")
    model = {**RAD_MODEL, "b_lcm_tokens": 128}
    printed(closed_form("rad_capacity").evaluate(nodes=1, **demand, **model), "36.2499")
    printed(closed_form("rad_ratio").evaluate(**demand, b_col_tokens=128, b_lcm_tokens=128), "3.1135")
    printed(closed_form("rad_prefill_share").evaluate(**demand, **model), "0.7569")


@pytest.mark.parametrize(
    ("b_col", "b_lcm", "prompt", "output", "nodes"),
    [(64, 256, 1000, 77, 1), (128, 128, 384, 12, 4), (96, 250, 700, 30, 2)],
)
def test_rad_capacity_is_the_inverse_of_the_time_of_a_request(b_col, b_lcm, prompt, output, nodes) -> None:
    t_lin, t_nl = Fraction(3, 1000), Fraction(7, 10**6)
    t_p = t_lin * -(-b_lcm // b_col) + t_nl * b_lcm
    t_d = t_lin + t_nl * b_col
    model = {"t_lin_s": t_lin, "t_nl_s": t_nl, "b_col_tokens": b_col, "b_lcm_tokens": b_lcm}
    expected = nodes / (Fraction(prompt, b_lcm) * t_p + Fraction(output, b_col) * t_d)
    value = closed_form("rad_capacity").exact(nodes=nodes, prefill_tokens=prompt, decode_tokens=output, **model)
    assert value == expected
    chunks = -(-prompt // b_lcm)
    whole = closed_form("rad_capacity_chunks").exact(nodes=nodes, prefill_chunks=chunks, decode_tokens=output, **model)
    assert whole == nodes / (chunks * t_p + Fraction(output, b_col) * t_d) <= expected


# ---------------------------------------------------------------------- Dai

DAI = {"launch_s": "0.01128", "tile_s": "0.03547", "tile_tokens": 128}


def test_dai_table() -> None:
    printed(1e3 * closed_form("dai_iteration_time").evaluate(**DAI, batch_tokens=512), "153.16")
    printed(1e3 * closed_form("dai_iteration_time").evaluate(**DAI, batch_tokens=128), "46.75")
    capacity = closed_form("dai_capacity")
    printed(capacity.evaluate(nodes=1, prefill_tokens=100, decode_tokens=100, **DAI, batch_tokens=512), "16.7145")
    printed(capacity.evaluate(nodes=1, prefill_tokens=129, decode_tokens=112, **DAI, batch_tokens=512), "13.8710")


def test_dai_tiles_per_batch_is_a_decision() -> None:
    choice = best_tiles(launch_s=0.01128, tile_s=0.03547, tile_tokens=128, max_batch_tokens=512)
    assert (choice.tiles, choice.batch_tokens) == (4, 512)
    printed(choice.tokens_per_s / 1e3, "3.343")
    printed(closed_form("dai_tile_rate").evaluate(**DAI, tiles=1) / 1e3, "2.738")
    printed(100 * choice.loss_of_one_tile, "18.1")  # one-tile batches lose 18.1 %, so four-tile batches gain 22.1 %
    printed(100 * choice.gain_over_one_tile, "22.1")


def test_dai_load_is_the_rate_over_the_capacity() -> None:
    where = {"nodes": 2, "prefill_tokens": 129, "decode_tokens": 112, **DAI, "batch_tokens": 512}
    capacity = closed_form("dai_capacity").exact(**where)
    assert closed_form("dai_load").exact(rate_per_s=Fraction(3, 4) * capacity, **where) == Fraction(3, 4)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 0.1), st.floats(0.001, 0.1), st.integers(1, 64), st.integers(1, 400))
def test_best_tiles_beats_every_batch(launch, tile, tile_tokens, budget) -> None:
    choice = best_tiles(launch_s=launch, tile_s=tile, tile_tokens=tile_tokens, max_batch_tokens=budget)
    rates = {n: n / (launch + tile * math.ceil(n / tile_tokens)) for n in range(1, budget + 1)}
    assert choice.tokens_per_s == pytest.approx(max(rates.values()), rel=1e-12)
    assert choice.tokens_per_s == pytest.approx(rates[choice.batch_tokens], rel=1e-12)


def test_tiles_for_a_share_of_the_limit() -> None:
    form, rate = closed_form("dai_tiles_for_share"), closed_form("dai_tile_rate")
    limit = closed_form("dai_best_rate").evaluate(tile_s=DAI["tile_s"], tile_tokens=128)
    for share in (0.5, 0.9, 0.95, 0.99):
        tiles = int(form.evaluate(launch_s=DAI["launch_s"], tile_s=DAI["tile_s"], share=share))
        assert rate.evaluate(**DAI, tiles=tiles) >= share * limit
        assert tiles == 1 or rate.evaluate(**DAI, tiles=tiles - 1) < share * limit
    with pytest.raises(InputError, match="share < 1"):
        form.evaluate(launch_s=1, tile_s=1, share=1)


# ---------------------------------------------------------------------- Nie


def uniform_volume(prompt: tuple[int, int], output: tuple[int, int], chunk: int) -> Fraction:
    """E[g] by summing every prompt and every output."""
    prompts, outputs = range(prompt[0], prompt[1] + 1), range(output[0], output[1] + 1)
    s1, s2 = (Fraction(sum(s**k for s in prompts), len(prompts)) for k in (1, 2))
    o1, o2 = (Fraction(sum(o**k for o in outputs), len(outputs)) for k in (1, 2))
    return (s1 + s2 / chunk + 2 * o1 * s1 + o1 + o2) / 2


@pytest.mark.parametrize(
    ("prompt", "output", "batch_s", "g", "rate"),
    [
        ((10, 1600), (10, 1600), "0.0372", "1079151.3", "3.2632"),
        ((10, 1066), (10, 2133), "0.0337", "1339675.4", "2.9016"),
    ],
)
def test_nie_table(prompt, output, batch_s, g, rate) -> None:
    volume = closed_form("nie_mean_g_uniform").exact(
        prompt_low=prompt[0], prompt_high=prompt[1], output_low=output[0], output_high=output[1], chunk_tokens=512
    )
    assert volume == uniform_volume(prompt, output, 512)
    printed(float(volume), g)
    where = {
        "nodes": 1,
        "kv_capacity_tokens": 131_000,
        "batch_s": batch_s,
        "memory_iterations": volume,
    }
    capacity = closed_form("nie_capacity").evaluate(**where)
    printed(capacity, rate)
    longest = prompt[1] + output[1]
    sufficient = closed_form("nie_sufficient").evaluate(**where, longest_tokens=longest)
    assert sufficient == pytest.approx((1 - longest / 131_000) * capacity, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.integers(1, 30), st.integers(0, 30), st.integers(1, 30), st.integers(1, 64))
def test_nie_uniform_at_random(prompt_low, prompt_width, output_low, output_width, chunk) -> None:
    prompt, output = (prompt_low, prompt_low + prompt_width), (output_low, output_low + output_width)
    volume = closed_form("nie_mean_g_uniform").exact(
        prompt_low=prompt[0], prompt_high=prompt[1], output_low=output[0], output_high=output[1], chunk_tokens=chunk
    )
    assert volume == uniform_volume(prompt, output, chunk)


def test_nie_geometric_and_fixed_against_sums() -> None:
    chunk, mean_s, mean_o = 8, 5.0, 3.0
    p, q = 1 / mean_s, 1 / mean_o
    total = math.fsum(
        p * (1 - p) ** (s - 1) * q * (1 - q) ** (o - 1) * ((1 + s / chunk) * s + 2 * o * s + (1 + o) * o) / 2
        for s in range(1, 300)
        for o in range(1, 200)
    )
    value = closed_form("nie_mean_g_geometric").evaluate(prompt_mean=mean_s, output_mean=mean_o, chunk_tokens=chunk)
    assert value == pytest.approx(total, rel=1e-12)
    # one request counted iteration by iteration, chunks that divide the prompt
    held = sum(chunk * i for i in range(1, 5)) + sum(32 + j for j in range(1, 8))
    assert closed_form("nie_mean_g_fixed").exact(prompt_tokens=32, output_tokens=7, chunk_tokens=chunk) == held


# ---------------------------------------------------------------------- WAIT


def test_wait_fixed_point() -> None:
    d0, d1, rates = Fraction(1, 100), Fraction(1, 10**7), [Fraction(3), Fraction(2)]
    prompts, outputs = [100, 300], [50, 20]
    volumes = [sum([p] + [p + j for j in range(1, o + 1)]) for p, o in zip(prompts, outputs, strict=True)]
    load = sum(r * v for r, v in zip(rates, volumes, strict=True))
    fluid = wait_fluid(
        rates_per_s=[float(r) for r in rates], prompts_tokens=prompts, outputs_tokens=outputs, d0_s=float(d0),
        d1_s=float(d1), kv_capacity_tokens=5000,
    )  # fmt: skip
    assert fluid.kv_load == pytest.approx(float(load), rel=1e-14)
    memory = closed_form("wait_memory").exact(d0_s=d0, d1_s=d1, kv_load=load)
    iteration = closed_form("wait_iteration").exact(d0_s=d0, d1_s=d1, kv_load=load)
    assert iteration == d0 + d1 * memory  # the time of an iteration that schedules M*
    assert memory == iteration * load  # what arrives in an iteration is what one holds
    assert fluid.memory_tokens == pytest.approx(float(memory), rel=1e-12)
    assert fluid.iteration_s == pytest.approx(float(iteration), rel=1e-12)
    thresholds = [closed_form("wait_threshold").evaluate(rate_per_s=r, d0_s=d0, d1_s=d1, kv_load=load) for r in rates]
    assert list(fluid.stage_requests) == pytest.approx(thresholds, rel=1e-12)
    assert fluid.thresholds == tuple(max(1, math.ceil(n)) for n in thresholds)


def test_wait_capacity_fills_the_memory_exactly() -> None:
    where = {"kv_capacity_tokens": 16_492, "d0_s": "0.0123", "d1_s": "0.0000017"}
    rate = closed_form("wait_capacity").exact(prompt_tokens=157, output_tokens=33, **where)
    volume = closed_form("wait_volume").exact(prompt_tokens=157, output_tokens=33)
    load = rate * volume
    assert closed_form("wait_memory").exact(d0_s="0.0123", d1_s="0.0000017", kv_load=load) == 16_492
    args = {
        "prompts_tokens": [157],
        "outputs_tokens": [33],
        "d0_s": 0.0123,
        "d1_s": 1.7e-6,
        "kv_capacity_tokens": 16_492,
    }
    assert wait_fluid(rates_per_s=[float(rate) * 0.999999], **args).fits
    assert not wait_fluid(rates_per_s=[float(rate) * 1.000001], **args).fits
    assert wait_fluid(rates_per_s=[float(rate) / 2], **args).headroom == pytest.approx(2, rel=1e-12)


def test_wait_without_an_equilibrium() -> None:
    fluid = wait_fluid(
        rates_per_s=[1e9, 0], prompts_tokens=[10, 10], outputs_tokens=[10, 10], d0_s=0.01, d1_s=1e-6,
        kv_capacity_tokens=100,
    )  # fmt: skip
    assert math.isinf(fluid.memory_tokens)
    assert fluid.stage_requests == (math.inf, 0.0)
    assert not fluid.fits
    with pytest.raises(InputError, match="no equilibrium"):
        _ = fluid.thresholds
    with pytest.raises(InputError, match="kv_load < 1"):
        closed_form("wait_memory").evaluate(d0_s=1, d1_s=1, kv_load=1)
    with pytest.raises(InputError, match="2 rates, 1 prompts"):
        wait_fluid(rates_per_s=[1, 1], prompts_tokens=[1], outputs_tokens=[1, 1], d0_s=1, d1_s=0, kv_capacity_tokens=1)
    with pytest.raises(InputError, match=r"prompts_tokens\[0\]"):
        wait_fluid(rates_per_s=[1], prompts_tokens=[-1], outputs_tokens=[1], d0_s=1, d1_s=0, kv_capacity_tokens=1)


# ---------------------------------------------------------------------- flow control and smallest volume first


def test_dong_and_svf_numbers() -> None:
    volume = closed_form("volume")
    workload = sum(int(volume.exact(prompt_tokens=10, output_tokens=o)) for o in (20, 40, 60))
    assert workload == 4060
    assert closed_form("flow_peak").exact(budget=4, workload=workload) == 16_240
    printed(closed_form("flow_capacity").evaluate(kv_capacity_tokens=16_492, workload=workload), "4.06207")
    assert closed_form("svf_ratio").exact(peak_share=Fraction(1, 2)) == 5


def test_theta_fraction() -> None:
    value = closed_form("theta_fraction").evaluate(completion_probability=Fraction(1, 200), alpha_p_s=1, alpha_d_s=1)
    printed(value, "0.0936781")
    assert math.floor(value * 128) == 11

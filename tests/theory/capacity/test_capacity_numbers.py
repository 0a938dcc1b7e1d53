"""The program against every closed form of theory.md section 3, at its numbers and at others of the same kind."""

from __future__ import annotations

import math

import numpy as np
import pytest
from capacity_instances import fixed

from tileq_theory import Demand, InputError, IterationTime
from tileq_theory.capacity import Level, Limits, capacity, rad_capacity, rad_padded_demand, static_capacity, tile_ratio

DAI = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)


def uniform_demand(prompts: tuple[int, int], outputs: tuple[int, int], chunk: float) -> Demand:
    """Nie's moments with fluid chunks, independent integer uniforms, by summation over all pairs' marginals."""
    s = np.arange(prompts[0], prompts[1] + 1.0)
    o = np.arange(outputs[0], outputs[1] + 1.0)
    reads = s.mean() * o.mean() + (o * (o + 1) / 2).mean()
    held = (s * (1 + s / chunk) / 2).mean() + reads
    chunks = (s / chunk).mean()
    return Demand(s.mean(), o.mean(), reads, (s * (s + 1) / 2).mean(), held, chunks + o.mean(), s[-1], s[-1] + o[-1])


@pytest.mark.parametrize(("lengths", "rate"), [((100, 100), 16.7145), ((129, 112), 13.8710)])
def test_dai_numbers(lengths: tuple[int, int], rate: float) -> None:
    answer = capacity(DAI, fixed(*lengths), Limits(max_batch_tokens=512))
    assert round(answer.rate_per_s, 4) == rate
    assert answer.rate_per_s * sum(lengths) == pytest.approx(512 / 0.15316, rel=1e-12)
    assert answer.binding == "time"
    assert [level.tokens for level in answer.levels] == [512]


@pytest.mark.parametrize("tiles", [1, 2, 4, 7])
def test_dai_is_b_max_over_its_time_for_any_number_of_tiles(tiles: int) -> None:
    answer = capacity(DAI, fixed(77, 301), Limits(max_batch_tokens=128 * tiles))
    assert answer.rate_per_s * 378 == pytest.approx(128 * tiles / (0.01128 + 0.03547 * tiles), rel=1e-9)


def test_dai_batches_of_one_and_of_four_tiles() -> None:
    one, four = (128 * k / float(DAI(128 * k)) / 1000 for k in (1, 4))
    assert (round(one, 3), round(four, 3)) == (2.738, 3.343)
    # with c = 0 the size of the batch would not matter: the gap is the launch constant alone
    assert round(100 * (1 - one / four), 1) == 18.1


def rad_demand() -> Demand:
    """P = 128 U{1..8}, O = min(floor(Exp(mean 200)) + 1, 512), paper convention."""
    q = math.exp(-1 / 200)
    outputs = np.arange(1, 513)
    mass = np.where(outputs < 512, q ** (outputs - 1) * (1 - q), q**511)
    o1, o2 = float(mass @ outputs), float(mass @ outputs**2)
    prompts = 128.0 * np.arange(1, 9)
    reads = o1 * prompts.mean() + (o2 + o1) / 2
    return Demand(
        prompts.mean(), o1, reads, (prompts * (prompts + 1) / 2).mean(), reads + 1e5, 4.5 + o1, 1024, 1536, 129
    )


def test_rad_reference_instance() -> None:
    time = IterationTime.rad(t_lin_s=4000e-6, t_nl_s=5e-6, tile_tokens=128)
    demand = rad_demand()
    assert round(demand.decode_tokens, 5) == 185.00078
    answer = rad_capacity(time, demand, Limits(max_batch_tokens=128), prefill_tile_tokens=128, decode_tile_tokens=128)
    assert round(answer.rate_per_s, 4) == 36.2499
    assert 1e6 * answer.prices.prefill_token_s == pytest.approx(36.25, rel=1e-9)
    assert 1e6 * answer.prices.decode_token_s == pytest.approx(36.25, rel=1e-9)
    prefill = next(level for level in answer.levels if level.kind == "prefill")
    decode = next(level for level in answer.levels if level.kind == "decode")
    assert round(prefill.iterations_per_s / decode.iterations_per_s, 4) == 3.1135
    assert round(tile_ratio(answer.levels).exact, 4) == 3.1135
    assert round(prefill.iterations_per_s * prefill.iteration_s, 4) == 0.7569
    # all batches of one tile cost the same per token, so mixing tokens brings nothing here
    assert capacity(time, demand, Limits(max_batch_tokens=128)).rate_per_s == pytest.approx(
        answer.rate_per_s, rel=1e-12
    )


@pytest.mark.parametrize(("b_lcm", "b_col", "nodes"), [(128, 128, 1), (384, 128, 1), (256, 64, 3), (640, 96, 5)])
def test_rad_closed_form(b_lcm: int, b_col: int, nodes: int) -> None:
    time = IterationTime.rad(t_lin_s=3.1e-3, t_nl_s=4e-6, tile_tokens=b_col)
    demand = fixed(640, 90)
    answer = rad_capacity(time, demand, Limits(nodes=nodes), prefill_tile_tokens=b_lcm, decode_tile_tokens=b_col)
    t_p, t_d = (3.1e-3 * math.ceil(b / b_col) + 4e-6 * b for b in (b_lcm, b_col))
    assert answer.rate_per_s == pytest.approx(nodes / (640 * t_p / b_lcm + 90 * t_d / b_col), rel=1e-9)
    x = {level.kind: level.iterations_per_s for level in answer.levels}
    assert x["prefill"] / x["decode"] == pytest.approx((640 / b_lcm) / (90 / b_col), rel=1e-9)


def test_rad_pads_prompts_that_are_not_tile_multiples() -> None:
    time = IterationTime.rad(t_lin_s=4e-3, t_nl_s=0.0, tile_tokens=128)
    padded = rad_padded_demand(fixed(130, 50), 2.0, 128)
    answer = rad_capacity(time, padded, Limits(), prefill_tile_tokens=128, decode_tile_tokens=128)
    assert answer.rate_per_s == pytest.approx(1 / (2 * 4e-3 + 50 / 128 * 4e-3), rel=1e-9)
    with pytest.raises(InputError, match="mean_chunks"):
        rad_padded_demand(fixed(130, 50), 1.0, 128)


@pytest.mark.parametrize(
    ("prompts", "outputs", "batch_s", "held", "rate"),
    [
        ((10, 1600), (10, 1600), 0.0372, 1079151.3, 3.2632),
        ((10, 1066), (10, 2133), 0.0337, 1339675.4, 2.9016),
    ],
)
def test_nie_numbers(
    prompts: tuple[int, int], outputs: tuple[int, int], batch_s: float, held: float, rate: float
) -> None:
    demand = uniform_demand(prompts, outputs, 512)
    assert round(demand.memory_iterations, 1) == held
    answer = capacity(IterationTime.constant(batch_s), demand, Limits(kv_tokens=131_000))
    assert round(answer.rate_per_s, 4) == rate
    assert answer.rate_per_s == pytest.approx(131_000 / (batch_s * demand.memory_iterations), rel=1e-9)
    assert answer.binding == "memory"
    assert answer.elasticities["kv_tokens"] == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(("d0", "d1", "kv"), [(0.01, 1e-7, 131_000), (0.002, 3e-6, 40_000), (0.03, 0.0, 9000)])
def test_wait_fluid_condition_and_its_identity_with_nie(d0: float, d1: float, kv: float) -> None:
    demand = fixed(512, 120)  # one chunk per prompt
    stages = 121 * (512 + 60)  # (l' + 1)(l + l'/2)
    assert demand.memory_iterations == stages
    answer = capacity(IterationTime.wait(d0_s=d0, d1_s=d1), demand, Limits(kv_tokens=kv))
    assert answer.rate_per_s * stages == pytest.approx(kv / (d0 + d1 * kv), rel=1e-9)
    if d1 == 0:
        nie = capacity(IterationTime.constant(d0), demand, Limits(kv_tokens=kv))
        assert answer.rate_per_s == pytest.approx(nie.rate_per_s, rel=1e-12)


def test_rad_without_elementwise_time_is_dai_without_launch() -> None:
    rad = IterationTime.rad(t_lin_s=0.02, t_nl_s=0.0, tile_tokens=64)
    dai = IterationTime.dai(launch_s=0.0, tile_s=0.02, tile_tokens=64)
    rates = [capacity(t, fixed(300, 70), Limits(max_batch_tokens=256)).rate_per_s for t in (rad, dai)]
    assert rates[0] == pytest.approx(rates[1], rel=1e-12)


def test_slots_bind_when_few_sequences_fit() -> None:
    demand = fixed(100, 100)
    answer = capacity(IterationTime.constant(0.02), demand, Limits(max_num_seqs=4, max_batch_tokens=4096))
    assert answer.binding == "slots"
    assert answer.rate_per_s == pytest.approx(4 / (0.02 * 101), rel=1e-9)


def test_tbt_binds_when_it_cuts_the_batch() -> None:
    limit = 0.01128 + 2 * 0.03547
    answer = capacity(DAI, fixed(100, 100), Limits(max_batch_tokens=4096, tbt_s=limit + 1e-3))
    assert answer.rate_per_s * 200 == pytest.approx(256 / limit, rel=1e-9)  # two tiles, not a whole more
    assert answer.levels[0].tokens == 256


def test_weights_floor_binds_when_batches_are_small() -> None:
    time = IterationTime(weight_floor_s=0.02, token_s=1e-5)
    answer = capacity(time, fixed(100, 100), Limits(max_batch_tokens=200))
    assert answer.binding == "weights_floor"
    assert answer.rate_per_s * 200 == pytest.approx(200 / 0.02, rel=1e-9)


def test_static_batches_by_renewal_reward() -> None:
    """Two requests with outputs 2 or 6 at even odds: longest is 2 with 1/4, else 6."""
    time = IterationTime(launch_s=0.01, token_s=0.001, kv_token_s=1e-5)
    rate = static_capacity(time, np.array([10.0, 10.0]), np.array([2.0, 6.0]), np.array([0.5, 0.5]), batch_size=2)
    prefill = 0.01 + 0.001 * 20
    longest = 2 * 0.25 + 6 * 0.75
    reads = 2 * 0.5 * ((11 + 12) + sum(range(11, 17)))
    assert rate == pytest.approx(2 / (prefill + longest * (0.01 + 0.001 * 2) + 1e-5 * reads), rel=1e-12)


def test_prescribed_levels_are_the_only_ones() -> None:
    answer = capacity(DAI, fixed(100, 100), Limits(max_batch_tokens=4096), levels=[Level(256)])
    assert answer.rate_per_s * 200 == pytest.approx(256 / 0.08222, rel=1e-9)
    assert answer.levels_proof is None

"""Answers to the exercises, as a reader would write them below the notebook's own cells; and wrong ones."""

from __future__ import annotations

__all__ = ["SOLUTIONS", "WRONG"]

SOLUTIONS: dict[tuple[int, int], str] = {
    (1, 1): (
        'answer = tq.closed_form("dai_tiles_for_share").evaluate(\n'
        '    launch_s=codellama.launch_s, tile_s=codellama.tile_s, share="0.95")'
    ),
    (1, 2): "answer = 1 - (260 / codellama.tau_s(260)) / (256 / codellama.tau_s(256))",
    (1, 3): (
        "from tileq_profiling.fit import find_staircase\n"
        "answer = find_staircase(mystery_tokens, mystery_seconds).width_tokens"
    ),
    (2, 1): "answer = 1 / ((512 + 100) * (4e-3 / 128 + 5e-6))",
    (2, 2): (
        'theory = tq.region(["chat=1024:256", "code=4096:32"], gpu="rtx-4090", model="llama-3.1-8b").theory\n'
        "answer = min((1 - 2 * price[0]) / price[1] for price in theory.prices())"
    ),
    (2, 3): (
        "grid = np.geomspace(5_000, 100_000, 400)\n"
        "rates = [tq.capacity(bound.time, bound.demand, bound.limits.with_(kv_tokens=m)).rate_per_s for m in grid]\n"
        "answer = grid[np.argmax(np.array(rates) >= bound.rate_per_s * (1 - 1e-6))]"
    ),
    (3, 1): "answer = min((1 - price[1] * 1.0) / price[0] for price in theory.prices())",
    (3, 2): "answer = explore(base.with_(rates=(5.0, 1.0))).binding",
    (3, 3): (
        "limits = np.linspace(0.02, 0.04, 81)\n"
        "answer = next(t for t in limits if explore(base.with_(tbt_s=t)).region.theory.contains([4.5, 0.4]))"
    ),
    (4, 1): (
        "bound, tile = plan.tile.capacity, plan.setting.time.tile_tokens\n"
        "own_bound = tq.rad_capacity(\n"
        "    bound.time, bound.demand, bound.limits, prefill_tile_tokens=tile, decode_tile_tokens=tile)\n"
        "answer = own_bound.rate_per_s / plan.rate_per_s"
    ),
    (4, 2): (
        "def p99_ms(budget):\n"
        "    config = engine('Sarathi').with_(token_budget=budget)\n"
        "    chosen = tq.policy('sarathi', token_budget=budget)\n"
        "    return Run.of(simulate(minute, chosen, time, config)).merged_gaps().quantile_ps(0.99) / 1e9\n"
        "answer = max(budget for budget in (128, 256, 512, 1024, 2048) if p99_ms(budget) <= 45)"
    ),
    (4, 3): (
        "from scipy.optimize import brentq\n"
        "sigma = lambda x: 1 / (1 + np.exp(-x))\n"
        "score = lambda w, l: sigma((w - 5) / 5) / 2 + (1 - sigma((l - 32768) / 32768)) / 2\n"
        "answer = brentq(lambda w: score(w, 8192) - score(0, 128), 0, 60)"
    ),
    (5, 1): "answer = np.mean((ratio >= band.low) & (ratio <= band.high))",
    (5, 2): "answer = int(np.ceil(30 / calibrated.rate.outer_low_per_s))",
    (5, 3): (
        "write_vllm_log(folder / 'decodes.log', decodes_only=True)\n"
        "blind = tq.calibrate(folder / 'decodes.log', gpu='rtx-6000-ada', model='llama-3.1-8b', kv_tokens=KV_TOKENS)\n"
        "answer = TRUTH(512, 0, 0, 1) / blind.time(512, 0, 0, 1)"
    ),
    (6, 1): (
        "low, high = 0.0, tq.chain_capacity(chain(12))\n"
        "for _ in range(12):\n"
        "    middle = (low + high) / 2\n"
        "    good = tq.iteration_chain(chain(12), rate_per_s=middle).mean_ttft_s <= 0.25\n"
        "    low, high = (middle, high) if good else (low, middle)\n"
        "answer = low"
    ),
    (6, 2): "answer = tq.drain_time_s(system, fluid.DecodeFirst(), tq.FluidState(50_000), horizon_s=2000)",
    (6, 3): (
        "answer = 1 / (time(128, 0, 0, 1) + 15 * time(8, 0, 0, 8) / 8)\n"
        "assert abs(answer / tq.chain_capacity(chain(8, exact.PrefillFirst(128))) - 1) < 1e-9"
    ),
    (7, 1): "answer = tokens_per_s / (128 * 8.5 + output)",
    (7, 2): (
        "ours, other = (serve(p, 1.5, 600.0, {}, 5, 0).ttft_p50_s for p in (SLAI, SARATHI))\n"
        "answer = 100 * (ours / other - 1)"
    ),
    (7, 3): (
        "rate, over = 0.5, []\n"
        "while not over:\n"
        "    seen = serve(SLAI, rate, 600.0, {}, 5, 0).tbt_p99_s\n"
        "    over = [tier for tier, limit in LIMITS_S.items() if seen[tier] > limit]\n"
        "    rate += 0.1\n"
        "answer = over[0]"
    ),
}
WRONG: dict[tuple[int, int], list[object]] = {
    (1, 1): [6, 8, 7.5, "many", True, float("nan")],
    (1, 2): [0.02, 0.2, -0.29, 43.1],
    (1, 3): [128, 256, 96, 384],
    (2, 1): [36.25, 45.4, 44.6, 1e9],
    (2, 2): [0.5, 2.35, 10, -1],
    (2, 3): [10_000, 17_000, 45_000, 5e6],
    (3, 1): [5.37, 3.0, 3.6, 5.9],
    (3, 2): ["time", "memory", "power", 1],
    (3, 3): [0.03, 28.2, 0.025, 0.04],
    (4, 1): [5.2, 0.8, 1.0, 71],
    (4, 2): [128, 512, 2048, "sarathi"],
    (4, 3): [0.0, 5.0, 10.0, 60],
    (5, 1): [0.9, 0.5, 94.5, 1.0],
    (5, 2): [4, 6, 4.68, 30],
    (5, 3): [0.5, 1.0, 3.0, 20],
    (6, 1): [20, 26.67, 33.0, 60],
    (6, 2): [10, 36, 80, 724],
    (6, 3): [20, 26.67, 20.9, 15],
    (7, 1): [36.25, 18.12, 30, 43.3],
    (7, 2): [-53, 26, 32.5, 0],
    (7, 3): ["standard", "both", 0.1, "free"],
}

r"""Gate-and-route: a fleet split into mixed and solo GPUs, as the fluid linear program of section 6.

A GPU is *mixed* (one prefill of chunk C beside at most B - 1 decodes; an iteration takes tau = alpha + beta C) or
*solo* (at most B decodes, gamma tokens/s each). For class i with P_i prompt and D_i output tokens,

    mu_p,i = C/(P_i tau),   mu_m,i = 1/(D_i tau),   mu_s,i = gamma/D_i.

Per GPU of the fleet: x_i share of GPUs that prefill class i, y_m,i and y_s,i its decodes on mixed and solo GPUs, q_p,i
and q_d,i those who wait, leaving at rate theta_i (patience). The program

    max  revenue rate
    sum x <= 1,   sum y_m <= (B - 1) sum x,   sum y_s <= B (1 - sum x)
    lambda_i - theta_i q_p,i      = mu_p,i x_i
    mu_p,i x_i - theta_i q_d,i    = mu_m,i y_m,i + mu_s,i y_s,i

earns, under *bundled* charging, w_i = c_p P_i + c_d D_i when a request completes, and, under *separate* charging,
c_p P_i when its prefill completes and c_d D_i when its decode does.

The program is solved in the flows a_p = theta q_p and a_d = theta q_d (requests that give up), so theta_i = 0 (nobody
gives up) needs no division: then a = 0, the queue of the fluid is not determined, and q is reported as 0.

Which class decodes on mixed and which on solo GPUs is not unique (a slot yields the same tokens per second for every
class); the answer fills mixed slots first, with the classes that prefill most, since those decodes need no KV transfer.

Source: Lin, Ding, Han, Zhang, arXiv 2602.02987 (bundled charging as in `theory.md`; the paper also treats separate
charging - its objective here is a reconstruction from the description above).
"""

from __future__ import annotations

__all__ = [
    "Fleet",
    "GateAndRoute",
    "GateAndRouteKkt",
    "GateAndRoutePrices",
    "ServiceRates",
    "gate_and_route",
    "gate_and_route_scale",
    "service_rates",
]

from tileq_theory.gate_and_route.answer import GateAndRoute, GateAndRouteKkt, GateAndRoutePrices
from tileq_theory.gate_and_route.fleet import Fleet, ServiceRates, service_rates
from tileq_theory.gate_and_route.optimum import gate_and_route, gate_and_route_scale

"""Networks of engines: agents' workflows, nominal loads, product forms, fluid under priorities, virtual stations."""

from tileq_theory.networks.fluid import FluidPath, fluid_path, fluid_rates, fluid_solutions
from tileq_theory.networks.model import AgentNetwork, Step
from tileq_theory.networks.product_form import NetworkLatency, fork_join_response, network_latency
from tileq_theory.networks.slots import SlotVerdict, slot_verdict
from tileq_theory.networks.virtual import PriorityCertificate, VirtualStation, priority_certificate, virtual_station
from tileq_theory.networks.workflows import chain, fork_join, loop, merge, rybko_stolyar

__all__ = [
    "AgentNetwork",
    "FluidPath",
    "NetworkLatency",
    "PriorityCertificate",
    "SlotVerdict",
    "Step",
    "VirtualStation",
    "chain",
    "fluid_path",
    "fluid_rates",
    "fluid_solutions",
    "fork_join",
    "fork_join_response",
    "loop",
    "merge",
    "network_latency",
    "priority_certificate",
    "rybko_stolyar",
    "slot_verdict",
    "virtual_station",
]

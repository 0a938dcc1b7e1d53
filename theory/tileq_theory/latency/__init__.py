"""Latency of one queue: the M/G/1 family with known and predicted sizes, batches, clipping, impatience, sizing."""

from tileq_theory.latency.batching import BatchQueue, batch_queue, batch_response_bounds
from tileq_theory.latency.birth_death import stationary
from tileq_theory.latency.chunked import ChunkedLatency, chunked_latency, chunked_saturation_per_s
from tileq_theory.latency.clipping import ClippedQueue, LimitChoice, TokenClipping, lognormal_clipped_moment
from tileq_theory.latency.impatience import ImpatientQueue, fixed_patience, impatient_queue
from tileq_theory.latency.mg1 import Mg1, SizeResponse, mg1, mg1_by_size
from tileq_theory.latency.multi_server import ManyServers, bounded_queue, erlang_b, erlang_c, many_servers, mg_c
from tileq_theory.latency.one_bit import OneBit, best_threshold, one_bit
from tileq_theory.latency.points import SizePoints
from tileq_theory.latency.predicted import PREDICTED_POLICIES, mg1_predicted
from tileq_theory.latency.predictors import ExponentialPrediction, LogNormalPrediction, Predictor
from tileq_theory.latency.priorities import ClassLatency, priority_classes
from tileq_theory.latency.service import ServiceLaw
from tileq_theory.latency.sizing import SizingModel, SizingPoint
from tileq_theory.latency.waiting import WaitingLaw, waiting_law

__all__ = [
    "PREDICTED_POLICIES",
    "BatchQueue",
    "ChunkedLatency",
    "ClassLatency",
    "ClippedQueue",
    "ExponentialPrediction",
    "ImpatientQueue",
    "LimitChoice",
    "LogNormalPrediction",
    "ManyServers",
    "Mg1",
    "OneBit",
    "Predictor",
    "ServiceLaw",
    "SizePoints",
    "SizeResponse",
    "SizingModel",
    "SizingPoint",
    "TokenClipping",
    "WaitingLaw",
    "batch_queue",
    "batch_response_bounds",
    "best_threshold",
    "bounded_queue",
    "chunked_latency",
    "chunked_saturation_per_s",
    "erlang_b",
    "erlang_c",
    "fixed_patience",
    "impatient_queue",
    "lognormal_clipped_moment",
    "many_servers",
    "mg1",
    "mg1_by_size",
    "mg1_predicted",
    "mg_c",
    "one_bit",
    "priority_classes",
    "stationary",
    "waiting_law",
]

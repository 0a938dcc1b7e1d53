"""Bari, Hegde, de Veciana, "Optimal Scheduling Algorithms for LLM Inference", arXiv 2508.01002: the theory, RAD."""

"""Dai, Deng, Li, Peng, "Throughput-Optimal Scheduling Algorithms for LLM Inference and AI Agents", arXiv 2504.07347."""

"""Nie, Si, Zhou, "A Queueing-Theoretic Framework for Stability Analysis of LLM Inference", arXiv 2605.04595."""

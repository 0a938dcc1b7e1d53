"""Requests in motion: policies, memory, simulator, executors, metrics."""

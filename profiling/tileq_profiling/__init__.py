"""Readers of what others recorded, measuring hardware, fitting and judging iteration-time models."""

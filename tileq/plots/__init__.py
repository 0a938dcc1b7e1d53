"""Figures, all in one style: readable in grey, the same bytes for the same data."""

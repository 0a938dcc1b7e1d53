"""Bari, Hegde, de Veciana, arXiv 2508.01002: SLAI, its measurements and its evaluation."""

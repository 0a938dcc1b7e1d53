"""Attention over the paged cache: one small file per way to compute it, chosen at start by what the device can do."""

"""How one batch is filled: one file per way of mixing prefill and decode."""

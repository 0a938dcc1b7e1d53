"""The five rules a policy is made of: decodes, order, mixing, admission, eviction; a few small kernels each."""

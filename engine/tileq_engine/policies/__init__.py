"""The policies: each a small file whose function returns a `Policy`."""

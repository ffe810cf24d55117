"""Pools, one file each. `python -m examples.pool.simple` brings a broker of its own."""

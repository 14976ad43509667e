"""Benchmarks: every published figure as one TOML in `benchmarks/`, measured and held against its target."""

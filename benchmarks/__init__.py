"""Benchmarks that a user can run: speed and fidelity, each row with its target."""

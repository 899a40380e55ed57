"""Evaluation: benchmarks and protocols."""

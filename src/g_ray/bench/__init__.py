"""Benchmarks: what encodings, ray maps and the reconstruction network cost on this machine."""

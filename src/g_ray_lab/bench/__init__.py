"""Benchmarks: time and memory of encodings, ray maps and reconstruction, and a comparison of ray coordinates."""

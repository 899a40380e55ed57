"""Weights of the networks that `g-ray` uses by name: files, and no code."""

__version__ = "0.1.0"

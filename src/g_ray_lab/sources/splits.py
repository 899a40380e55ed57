"""Splits of an endless stream of scenes."""

SPLITS = ("train", "test")

HELD_OUT = 2**31
"""A rank that no run has: its scenes are never trained on, and are none of the test split's either."""

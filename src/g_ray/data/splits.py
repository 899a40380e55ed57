"""Which part of an endless stream of scenes is for what."""

SPLITS = ("train", "test")

HELD_OUT = 2**31
"""A rank that no run has: its scenes are never trained on, and are none of the test split's either."""

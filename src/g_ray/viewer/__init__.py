"""Figures and pages that show what the library computes."""

"""Losses: pure functions that return a value per sample, and their settings."""

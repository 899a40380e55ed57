"""Scenes: data that carries its own ground truth."""

"""Meshes, rendered through 24 cameras each in the released Objaverse layout, and what is learned from them."""

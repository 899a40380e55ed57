"""COLMAP in one place: its models on disk, its cameras as ours, and any camera as one that it can compute with."""

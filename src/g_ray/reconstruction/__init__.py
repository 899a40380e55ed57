"""Whole tasks as library calls: reconstruct a scene from photographs, synthesize new views."""

"""Rigid motions, similarities, pointmaps and the precision they are computed in: what cameras and metrics rest on."""

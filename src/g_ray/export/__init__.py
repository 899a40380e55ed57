"""Reconstructions as folders of files that other tools open."""

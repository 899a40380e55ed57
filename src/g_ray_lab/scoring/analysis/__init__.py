"""Measurements of trained reconstruction networks: where they attend, and what calibration errors cost."""

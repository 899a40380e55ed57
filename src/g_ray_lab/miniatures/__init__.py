"""Miniatures of evaluation datasets: rooms with exact truth, written in each dataset's own format."""

"""Tasks: each combines a model, data and an objective."""

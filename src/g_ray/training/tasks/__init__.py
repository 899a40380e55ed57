"""What the engine can train: each task joins a model, data and an objective."""

"""Evaluation: test protocols, scorers of each task, and studies that train and compare methods."""

"""Evaluation protocols: which frames of which datasets, at which size, aligned and scored how."""

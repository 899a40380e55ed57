"""Evaluation runs: predict every set of a protocol, keep the predictions, score them, and write the table."""

"""Checks of a data set before training: whether its poses, depth and pictures agree."""

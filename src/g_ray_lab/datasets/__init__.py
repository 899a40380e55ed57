"""Datasets that models are trained and evaluated on, read from the layouts in which they are distributed.

A new evaluation dataset is a file here with its download and its readers, a line in `dataset_registry.DATASETS`, and a
miniature in `g_ray_lab.miniatures`.
"""

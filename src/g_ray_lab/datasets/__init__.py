"""Datasets that models are evaluated on, read from the layouts in which they are distributed.

A new one is a file here, a miniature in `g_ray_lab.miniatures`, and a line in `registry.DATASETS`.
"""

"""Miniatures of evaluation datasets, written once for all tests of a worker."""

import pytest


@pytest.fixture(scope="session")
def miniature_size():
    from g_ray_lab.miniatures.miniature_room import MiniatureSize

    return MiniatureSize(scenes=1, frames=4, width=120)


@pytest.fixture(scope="session")
def miniature_root(tmp_path_factory, miniature_size):
    """`miniature_root(name)`: the root of a dataset's miniature; datasets that share files share it."""
    from g_ray_lab.miniatures import MINIATURES

    written = {}

    def get(name):
        write = MINIATURES[name]
        if write not in written:
            written[write] = tmp_path_factory.mktemp("dataset")
            write(written[write], miniature_size)
        return written[write]

    return get


@pytest.fixture(scope="session")
def miniature(miniature_root, miniature_size):
    """`miniature(name)`: the root of a dataset's miniature, the room of its first scene, and its first scene."""
    from g_ray_lab.datasets.dataset_registry import DATASETS

    def get(name):
        root = miniature_root(name)
        scene = DATASETS[name].read(root, DATASETS[name].list_scenes(root)[0])
        return root, miniature_size.make_room(0), scene

    return get

"""Miniatures of all datasets, written once."""

import pytest

from g_ray.evaluation.datasets.registry import DATASETS
from g_ray.evaluation.miniatures.room import MiniatureSize

SIZE = MiniatureSize(scenes=1, frames=3, width=120)


@pytest.fixture(scope="session")
def miniature(tmp_path_factory):
    """`miniature(name)`: the root of a dataset's miniature, the room of its first scene, and its first scene."""
    written = {}

    def get(name):
        write = DATASETS[name].write_miniature
        if write not in written:
            written[write] = tmp_path_factory.mktemp("dataset")
            write(written[write], SIZE)
        root = written[write]
        scene = DATASETS[name].read(root, DATASETS[name].list_scenes(root)[0])
        return root, SIZE.make_room(0), scene

    return get

"""RealEstate10K on disk: two layouts behind one face, the evaluation index, and a check of the camera axes."""

from g_ray.data.re10k.clips import Axes, Clip, Clips
from g_ray.data.re10k.index import EvaluationIndex, IndexedScene, read_index
from g_ray.data.re10k.layouts import open_clips

__all__ = ["Axes", "Clip", "Clips", "EvaluationIndex", "IndexedScene", "open_clips", "read_index"]

"""From photographs with cameras to a scene: in chunks that fit into memory, joined, aligned, scored, saved."""

from g_ray.reconstruction.alignment import Aligned, align_to_poses, known_distance
from g_ray.reconstruction.chunks import overlapping
from g_ray.reconstruction.joining import Joined, Piece, join
from g_ray.reconstruction.scene import Reconstruction, reconstruct

__all__ = [
    "Aligned",
    "Joined",
    "Piece",
    "Reconstruction",
    "align_to_poses",
    "join",
    "known_distance",
    "overlapping",
    "reconstruct",
]

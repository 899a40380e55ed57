"""From photographs with cameras to a scene: in chunks that fit into memory, joined, aligned, scored, saved."""

from g_ray.reconstruction.alignment import Alignment, align_to_poses, scale_to_distance
from g_ray.reconstruction.chunks import split_into_chunks
from g_ray.reconstruction.joining import JoinedChunk, ViewPiece, join_chunk
from g_ray.reconstruction.scene import Reconstruction, reconstruct

__all__ = [
    "Alignment",
    "JoinedChunk",
    "Reconstruction",
    "ViewPiece",
    "align_to_poses",
    "join_chunk",
    "reconstruct",
    "scale_to_distance",
    "split_into_chunks",
]

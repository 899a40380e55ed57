"""Do the poses of a data set fit its pictures? Asked of a few of its clips."""

import torch

from g_ray.data.checks.axes import MatchedViews
from g_ray.data.checks.matching import match_images
from g_ray.data.clip_sampling import hash_to_unit
from g_ray.data.re10k.clips import Clip, Clips
from g_ray.geometry.pose import Pose

STEP = 15
"""Frames between two views of a pair: enough motion for rays to part, little enough to recognise things."""
PAIRS = 4
"""Pairs per clip."""


def match_clips(clips: Clips, count: int) -> list[MatchedViews]:
    """Matched pixels of `count` clips, always the same ones, for `check_axes`."""
    chosen = sorted(clips.keys, key=hash_to_unit)[:count]
    return [pair for key in chosen for pair in match_pairs(clips.get_clip(key))]


def match_pairs(clip: Clip) -> list[MatchedViews]:
    """Pairs of frames spread over the clip, with the pixels that show the same things."""
    step = min(STEP, len(clip) - 1)
    starts = sorted({int(start) for start in torch.linspace(0, len(clip) - 1 - step, PAIRS)})
    return [_match_frames(clip, start, start + step) for start in starts] if step else []


def _match_frames(clip: Clip, first: int, second: int) -> MatchedViews:
    one, other = clip.frame(first), clip.frame(second)
    poses = Pose(clip.poses.world_from_cam[[first, second]])
    return MatchedViews(match_images(one.image, other.image), (one.camera, other.camera), poses)

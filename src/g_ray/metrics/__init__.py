"""Metrics: pure functions (truth, predicted) to a value per sample; protocols average them."""

from g_ray.metrics.bootstrap import Interval, bootstrap
from g_ray.metrics.lpips import LPIPS, load_lpips
from g_ray.metrics.psnr import mse, psnr
from g_ray.metrics.scenes import SceneScores, score_scenes
from g_ray.metrics.ssim import ssim

__all__ = [
    "LPIPS",
    "Interval",
    "SceneScores",
    "bootstrap",
    "load_lpips",
    "mse",
    "psnr",
    "score_scenes",
    "ssim",
]

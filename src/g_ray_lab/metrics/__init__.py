"""Metrics: pure functions of (truth, predicted) that return one value per sample; protocols average them."""

from g_ray_lab.metrics.image_metrics import SceneScores, mse, psnr, score_scenes, ssim
from g_ray_lab.metrics.intervals import Interval, bootstrap
from g_ray_lab.metrics.lpips import LPIPS, load_lpips

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

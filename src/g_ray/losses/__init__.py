"""Losses: pure functions to a value per sample."""

from g_ray.losses.nvs import NVSLoss, nvs_loss

__all__ = ["NVSLoss", "nvs_loss"]

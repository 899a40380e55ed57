"""Photographs, videos, masks and depth maps as files; point clouds and scenes for viewers."""

"""The `g-ray` command."""

from g_ray.cli.main import main

__all__ = ["main"]

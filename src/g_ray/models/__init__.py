"""Networks that receive their encoding: no camera is stored on a module."""

from g_ray.models.lvsm import LVSM, METHODS, SIZES, LVSMConfig, Method

__all__ = ["LVSM", "METHODS", "SIZES", "LVSMConfig", "Method"]

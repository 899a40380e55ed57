"""Put src/g_ray_lab into the wheel. Not into an editable install, which finds it where it is."""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class IncludeSources(BuildHookInterface):
    """Add the sources, which are outside of this folder."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict) -> None:
        if version != "editable":
            build_data["force_include"]["../../src/g_ray_lab"] = "g_ray_lab"

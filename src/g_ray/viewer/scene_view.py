"""Show a reconstruction in 3D in the browser: points, frusta, a switch per view, a threshold of confidence."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import viser
from jaxtyping import Float

from g_ray.export.frusta import build_frustum, choose_frustum_size
from g_ray.export.options import ExportOptions
from g_ray.export.points import PointCloud, collect_points
from g_ray.export.reconstruction import Reconstruction
from g_ray.viewer.colors import CAMERA_COLORS

MAX_POINTS = 600_000
START_HIDDEN = 20
"""Per cent of the points that are hidden at first: the least confident ones."""
POINT = 0.004
"""Size of a point in median depths."""
MARK = (255, 79, 154)


def get_view_color(view: int) -> tuple[int, int, int]:
    """Return the color that a view has everywhere."""
    code = CAMERA_COLORS[view % len(CAMERA_COLORS)]
    red, green, blue = (int(code[start : start + 2], 16) for start in (1, 3, 5))
    return red, green, blue


@dataclass
class ViewHandles:
    """What stands for one view in the scene. Its points are sorted, the most confident first."""

    points: Any
    frustum: Any
    toggle: Any
    cloud: PointCloud


class SceneView:
    """Fills a viser server with a reconstruction, and answers its controls."""

    def __init__(
        self, server: viser.ViserServer, reconstruction: Reconstruction, max_points: int = MAX_POINTS
    ) -> None:
        self.server = server
        cloud = collect_points(reconstruction, ExportOptions(confidence=0.0, max_points=max_points))
        self.confidence = np.sort(cloud.confidence)
        self.size = choose_frustum_size(reconstruction, cloud)
        self._set_initial_camera(reconstruction, cloud)
        self._add_controls(len(cloud))
        self.views = [
            self._add_view(view, named.name, named.camera, named.pose, _select_view(cloud, view))
            for view, named in enumerate(reconstruction.cameras())
        ]
        self.update()

    def update(self, *_: object) -> None:
        """Update the scene to the state of the controls."""
        floor = self.compute_floor(float(self.hidden.value))
        for view in self.views:
            count = int(np.searchsorted(-view.cloud.confidence, -floor, side="right"))
            view.points.points = view.cloud.positions[:count].astype(np.float32)
            view.points.colors = view.cloud.colors[:count]
            view.points.point_size = self.point_size.value * self.size
            view.points.visible = view.toggle.value
            view.frustum.visible = view.toggle.value and self.frusta.value

    def compute_floor(self, hidden_percent: float) -> float:
        """Return the confidence below which points are hidden."""
        index = round(hidden_percent / 100 * (len(self.confidence) - 1))
        return float(self.confidence[index])

    def mark_point(self, point: Float[np.ndarray, "3"] | None) -> None:
        """Show the point of the clicked pixel."""
        self.marker.visible = point is not None
        if point is not None:
            self.marker.position = tuple(point.tolist())

    def _add_controls(self, count: int) -> None:
        gui = self.server.gui
        gui.configure_theme(show_logo=False, show_share_button=False)
        self.hidden = gui.add_slider(
            "Hide least sure",
            min=0,
            max=99,
            step=1,
            initial_value=START_HIDDEN,
            hint="Per cent of the points",
        )
        self.point_size = gui.add_slider(
            "Point size", min=0.005, max=0.2, step=0.005, initial_value=0.035, hint="In sizes of a frustum"
        )
        self.frusta = gui.add_checkbox("Cameras", initial_value=True)
        everything = gui.add_button_group("Views", ("all", "none"))
        for control in (self.hidden, self.point_size, self.frusta):
            control.on_update(self.update)
        everything.on_click(lambda event: self._switch_all(event.target.value == "all"))
        self.marker = self.server.scene.add_icosphere(
            "/clicked", radius=0.2 * self.size, color=MARK, visible=False
        )

    def _switch_all(self, on: bool) -> None:
        for view in self.views:
            view.toggle.value = on
        self.update()

    def _add_view(self, view: int, name: str, camera: Any, pose: Any, cloud: PointCloud) -> ViewHandles:
        scene = self.server.scene
        empty = np.zeros((0, 3))
        points = scene.add_point_cloud(
            f"/views/{view}/points", empty, empty.astype(np.uint8), point_shape="circle", precision="float32"
        )
        lines = build_frustum(camera, pose, self.size).segments().numpy(force=True).astype(np.float32)
        outline = scene.add_line_segments(
            f"/views/{view}/camera", lines, get_view_color(view), thickness=2.0, thickness_units="screen"
        )
        toggle = self.server.gui.add_checkbox(name, initial_value=True)
        toggle.on_update(self.update)
        return ViewHandles(points, outline, toggle, cloud)

    def _set_initial_camera(self, reconstruction: Reconstruction, cloud: PointCloud) -> None:
        """Look from behind the first camera at the middle of the points."""
        first = reconstruction.poses()[0].world_from_cam.double().numpy(force=True)
        center, down, forward = first[:3, 3], first[:3, 1], first[:3, 2]
        self.server.scene.set_up_direction(tuple((-down).tolist()))
        start = self.server.initial_camera
        start.position = tuple((center - 8 * self.size * forward - 4 * self.size * down).tolist())
        start.look_at = tuple(np.median(cloud.positions, axis=0).tolist())


def _select_view(cloud: PointCloud, view: int) -> PointCloud:
    index = np.nonzero(cloud.view == view)[0]
    return cloud[index[np.argsort(-cloud.confidence[index], kind="stable")]]

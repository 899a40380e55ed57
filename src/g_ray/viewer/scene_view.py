"""Show a reconstruction in 3D in the browser: points, cameras with their photographs, and controls for them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import viser
import viser.transforms as tf
from jaxtyping import Bool, Float
from trimesh import Trimesh

from g_ray.export.export_options import ExportOptions
from g_ray.export.frusta import SIZE, build_frustum, choose_frustum_size
from g_ray.export.points import PointCloud, collect_points
from g_ray.export.result import Reconstruction
from g_ray.media.view import View
from g_ray.viewer.colors import CAMERA_COLORS
from g_ray.viewer.ruler import Ruler
from g_ray.viewer.scene_objects import (
    RulerTool,
    SceneGuides,
    build_photo_surface,
    find_surface_share,
    read_thumbnail,
)
from g_ray.viewer.viewpoint import choose_viewpoint

MAX_POINTS = 600_000
START_HIDDEN = 20
"""Per cent of the points that are hidden at first: the least confident ones."""
MARK = (255, 79, 154)
BALL = 0.08
"""Radius of the ball at a camera's center, in sizes of a frustum: something to click on from any side."""
WIDEST_DEG = 110.0
"""Field of view of the browser's own camera, at most: it is a pinhole."""
THUMBNAIL, SHARP = 256, 1024
"""Long side of photographs in pixels: of all of them, so that hundreds load fast, and of the one that is looked at."""
LEFT = 0.3
"""A browser has left a view when it is this far from its center, in sizes of a frustum."""
OVERVIEW_FOV_DEG = 55.0
OVERVIEW = "overview"


def get_view_color(view: int) -> tuple[int, int, int]:
    """Return the color that a view has everywhere."""
    code = CAMERA_COLORS[view % len(CAMERA_COLORS)]
    red, green, blue = (int(code[start : start + 2], 16) for start in (1, 3, 5))
    return red, green, blue


@dataclass
class ViewHandles:
    """What stands for one view in the scene. Its points are sorted, the most confident first."""

    view: View
    points: Any
    frustum: Any
    ball: Any
    photo: Any
    """None if the camera has no rays to draw it on."""
    cloud: PointCloud
    shown: bool = True


@dataclass
class Look:
    """A browser that looks from a view, and the sharper photograph that it sees there."""

    client: int
    center: Float[np.ndarray, "3"]
    photo: Any
    arrived: bool = False
    """Whether the browser has reported to be there; what it reports before is where it came from."""


class SceneView:
    """Fills a viser server with a reconstruction, and answers its controls."""

    def __init__(
        self, server: viser.ViserServer, reconstruction: Reconstruction, max_points: int = MAX_POINTS
    ) -> None:
        self.server = server
        self.looking: Look | None = None
        self.on_pixel: Callable[[int, float, float], None] = lambda view, u, v: None
        """Called with a view and a pixel of its photograph when somebody who looks from there clicks on it."""
        self.reconstruction = reconstruction
        self.thumbnails = [
            read_thumbnail(reconstruction.get_image_path(view.name), THUMBNAIL)
            for view in reconstruction.cameras()
        ]
        cloud = collect_points(reconstruction, ExportOptions(confidence=0.0, max_points=max_points))
        self.cloud, self.confidence = cloud, np.sort(cloud.confidence)
        self.size = choose_frustum_size(reconstruction, cloud)
        self.depth = self.size / SIZE
        self.start = choose_viewpoint(reconstruction.poses(), cloud.positions, self.depth)
        self._set_initial_camera()
        centers = np.stack([pose.translation.double().numpy(force=True) for pose in reconstruction.poses()])
        self.guides = SceneGuides(
            server, cloud.positions, centers, self.start.up, self.depth, reconstruction.unit
        )
        self.marker = server.scene.add_icosphere(
            "/clicked", radius=0.2 * self.size, color=MARK, visible=False
        )
        self.views = [
            self._add_view(number, view, _select_view(cloud, number))
            for number, view in enumerate(reconstruction.cameras())
        ]
        self._add_controls()
        self.update_visibility()
        server.on_client_connect(self._watch)
        server.on_client_disconnect(self._forget)

    def update(self, *_: object) -> None:
        """Update the scene to the state of the controls."""
        for view in self.views:
            positions, colors = self._select_points(view.cloud, int(self.hidden.value))
            view.points.points, view.points.colors = positions, colors
        self.update_visibility()

    def update_visibility(self, *_: object) -> None:
        """Show and hide objects as the switches are set; the points themselves are not sent again."""
        inside = self.looking is not None
        for view in self.views:
            # Inside of a frustum, those of other views would stand in the way.
            cameras = view.shown and self.frusta.value and not inside
            view.points.point_size = self.point_size.value * self.size
            view.points.visible = view.shown
            view.frustum.visible = view.ball.visible = cameras
            if view.photo is not None:
                view.photo.visible = cameras and self.photos.value
        if self.looking is not None and self.looking.photo is not None:
            self.looking.photo.visible = self.photos.value
        self.guides.show(self.grid.value)

    def compute_floor(self, hidden_percent: int) -> float:
        """Return the confidence below which points are hidden."""
        index = round(hidden_percent / 100 * (len(self.confidence) - 1))
        return float(self.confidence[index])

    def mark_point(self, point: Float[np.ndarray, "3"] | None) -> None:
        """Show the point of the clicked pixel."""
        self.marker.visible = point is not None
        if point is not None:
            self.marker.position = tuple(point.tolist())

    def look_from(self, client: viser.ClientHandle, number: int) -> None:
        """Move a browser's camera to a view, upright as the photograph and wide enough for all of it."""
        view = self.views[number].view
        assert view.pose is not None
        pose = view.pose.world_from_cam.double().numpy(force=True)
        center, down, forward = pose[:3, 3], pose[:3, 1], pose[:3, 2]
        fov = view.camera.fov()
        across, high = (
            math.radians(min(float(angle), WIDEST_DEG)) for angle in (fov.horizontal_deg, fov.vertical_deg)
        )
        # A window narrower than the photograph needs a larger vertical angle to show its sides.
        needed = max(high, 2 * math.atan(math.tan(across / 2) / max(client.camera.aspect, 0.1)))
        self._end_look()
        sharp = read_thumbnail(self.reconstruction.get_image_path(view.name), SHARP)
        surface = build_photo_surface(view.camera, sharp, self.size)
        photo = None if surface is None else self._add_surface("/looking", surface, view)
        if surface is not None and photo is not None:
            photo.on_click(lambda event, mesh=surface: self._pick_pixel(number, mesh, event))
        self.looking = Look(client.client_id, center, photo)
        self.choice.value = view.name  # also after a click, so that "overview" can be chosen
        self._move(client, center, center + self.depth * forward, -down, needed)
        self.update_visibility()

    def _pick_pixel(self, number: int, surface: Trimesh, event: Any) -> None:
        """Pass on the pixel of a click on the photograph that a browser looks at."""
        view = self.views[number].view
        assert view.pose is not None
        pose = view.pose.world_from_cam.double().numpy(force=True)
        ray = np.stack([np.array(event.ray_origin) - pose[:3, 3], event.ray_direction]) @ pose[:3, :3]
        share = find_surface_share(surface, *ray)
        if share is not None:
            self.on_pixel(number, *(share * [view.camera.width, view.camera.height]).tolist())

    def show_overview(self, client: viser.ClientHandle) -> None:
        """Move a browser's camera to where it was at first."""
        start = self.start
        self._end_look()
        self.update_visibility()
        self._move(client, start.position, start.look_at, start.up, math.radians(OVERVIEW_FOV_DEG))

    def show_views(self, first: int, last: int) -> None:
        """Show views `first` to `last`, counted from 1, and hide all others."""
        for number, view in enumerate(self.views, 1):
            view.shown = first <= number <= last
        self._sync_toggle()
        self.update_visibility()

    def toggle_view(self, name: str, shown: bool) -> None:
        """Show or hide one view."""
        next(handles for handles in self.views if handles.view.name == name).shown = shown
        self.update_visibility()

    def _watch(self, client: viser.ClientHandle) -> None:
        client.camera.on_update(lambda _: self._leave_view(client))

    def _forget(self, client: viser.ClientHandle) -> None:
        if self.looking is not None and self.looking.client == client.client_id:
            self._end_look()
            self.update_visibility()

    def _leave_view(self, client: viser.ClientHandle) -> None:
        """Show all cameras again when the browser that looks from one has moved away."""
        look = self.looking
        if look is None or look.client != client.client_id:
            return
        away = np.linalg.norm(client.camera.position - look.center) > LEFT * self.size
        look.arrived = look.arrived or not away
        if away and look.arrived:
            self._end_look()
            self.update_visibility()

    def _end_look(self) -> None:
        if self.looking is not None and self.looking.photo is not None:
            self.looking.photo.remove()
        self.looking = None

    def _move(
        self,
        client: viser.ClientHandle,
        position: Float[np.ndarray, "3"],
        look_at: Float[np.ndarray, "3"],
        up: Float[np.ndarray, "3"],
        fov: float,
    ) -> None:
        with client.atomic():
            client.camera.position = position
            client.camera.look_at = look_at
            client.camera.up_direction = up
            client.camera.fov = min(fov, math.radians(WIDEST_DEG))

    def _add_controls(self) -> None:
        gui = self.server.gui
        gui.configure_theme(control_width="small", show_logo=False, show_share_button=False)
        names = [handles.view.name for handles in self.views]
        self.choice = gui.add_dropdown("Look from", (OVERVIEW, *names), hint="Or click a camera in the scene")
        self.hidden = gui.add_slider(
            "Hide %",
            min=0,
            max=99,
            step=1,
            initial_value=START_HIDDEN,
            hint="Share of the points, the least confident first",
        )
        self.point_size = gui.add_slider(
            "Points",
            min=0.005,
            max=0.2,
            step=0.005,
            initial_value=0.035,
            hint="Size of points, relative to a frustum",
        )
        self.frusta = gui.add_checkbox("Cameras", initial_value=True)
        self.photos = gui.add_checkbox("Photographs", initial_value=True)
        self.grid = gui.add_checkbox("Grid", initial_value=True)
        ruler = Ruler.make(self.reconstruction, self.cloud)
        self.ruler = RulerTool(self.server, ruler, self._list_shown)
        self._add_view_controls(names)
        self.hidden.on_update(self.update)
        for control in (self.point_size, self.frusta, self.photos, self.grid):
            control.on_update(self.update_visibility)
        self.choice.on_update(self._follow_choice)

    def _add_view_controls(self, names: list[str]) -> None:
        """Add the folder that shows and hides views; closed at first, and as long for a hundred views as for two."""
        gui, count = self.server.gui, len(names)
        with gui.add_folder("Views", expand_by_default=False):
            everything = gui.add_button_group("Show", ("all", "none"))
            if count > 1:
                self.range = gui.add_multi_slider(
                    "Range", min=1, max=count, step=1, initial_value=(1, count), hint="Shows these views only"
                )
                self.range.on_update(lambda _: self.show_views(*(int(end) for end in self.range.value)))
            self.one = gui.add_dropdown("View", names)
            self.toggle = gui.add_checkbox("shown", initial_value=True, hint="The view chosen above")
        everything.on_click(lambda event: self.show_views(1, count if event.target.value == "all" else 0))
        self.one.on_update(self._sync_toggle)
        self.toggle.on_update(lambda _: self.toggle_view(self.one.value, self.toggle.value))

    def _sync_toggle(self, *_: object) -> None:
        """Show in the switch whether the chosen view is shown."""
        self.toggle.value = next(
            handles for handles in self.views if handles.view.name == self.one.value
        ).shown

    def _follow_choice(self, event: viser.GuiEvent[Any]) -> None:
        if event.client is None:  # set by the program, not by a person in a browser
            return None
        if self.choice.value == OVERVIEW:
            return self.show_overview(event.client)
        names = [handles.view.name for handles in self.views]
        return self.look_from(event.client, names.index(self.choice.value))

    def _add_view(self, number: int, view: View, cloud: PointCloud) -> ViewHandles:
        assert view.pose is not None
        scene, color = self.server.scene, get_view_color(number)
        points = scene.add_point_cloud(
            f"/views/{number}/points",
            *self._select_points(cloud, START_HIDDEN),
            point_shape="circle",
            precision="float32",
        )
        lines = build_frustum(view.camera, view.pose, self.size).segments().numpy(force=True)
        outline = scene.add_line_segments(
            f"/views/{number}/camera",
            lines.astype(np.float32),
            color,
            thickness=2.0,
            thickness_units="screen",
        )
        center = view.pose.translation.double().numpy(force=True)
        ball = scene.add_icosphere(
            f"/views/{number}/center",
            BALL * self.size,
            color,
            subdivisions=2,
            cast_shadow=False,
            position=center,
        )
        surface = build_photo_surface(view.camera, self.thumbnails[number], self.size)
        photo = None if surface is None else self._add_surface(f"/views/{number}/photo", surface, view)
        for handle in (ball, photo):
            if handle is not None:
                handle.on_click(lambda event: self.look_from(event.client, number))
        return ViewHandles(view, points, outline, ball, photo, cloud)

    def _select_points(self, cloud: PointCloud, hidden_percent: int) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and colors of a view's points that are not hidden."""
        floor = self.compute_floor(hidden_percent)
        count = int(np.searchsorted(-cloud.confidence, -floor, side="right"))
        return cloud.positions[:count].astype(np.float32), cloud.colors[:count]

    def _add_surface(self, name: str, surface: Trimesh, view: View) -> Any:
        assert view.pose is not None
        pose = view.pose.world_from_cam.double().numpy(force=True)
        return self.server.scene.add_mesh_trimesh(
            name,
            surface,
            cast_shadow=False,
            receive_shadow=False,
            wxyz=tf.SO3.from_matrix(pose[:3, :3]).wxyz,
            position=pose[:3, 3],
        )

    def _list_shown(self) -> Bool[np.ndarray, "point"]:
        """Return which points of the cloud are not hidden."""
        views = np.array([view.shown for view in self.views])
        return views[self.cloud.view] & (self.cloud.confidence >= self.compute_floor(int(self.hidden.value)))

    def _set_initial_camera(self) -> None:
        self.server.scene.set_up_direction(self.start.up)
        camera = self.server.initial_camera
        camera.position, camera.look_at, camera.up = self.start.position, self.start.look_at, self.start.up
        camera.fov = math.radians(OVERVIEW_FOV_DEG)
        # From the inside of a frustum to far beyond the scene, whatever its unit is.
        camera.near, camera.far = 0.1 * self.size, 500 * self.depth


def _select_view(cloud: PointCloud, view: int) -> PointCloud:
    index = np.nonzero(cloud.view == view)[0]
    return cloud[index[np.argsort(-cloud.confidence[index], kind="stable")]]

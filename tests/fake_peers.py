"""Fakes of peers with their documented interfaces. They know the truth: cameras inside of a sphere, seen exactly.

A fake answers in its peer's own conventions (direction of poses, z or distance, shapes, units) and in a world of its
own. It checks the priors that it is given against the truth, in these conventions too, and records what it used.
"""

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType

import torch
from torch import nn

from g_ray.geometry.pose import Pose, quaternion_from_rotation
from g_ray.predictors.peers.adapter import PeerImage

RADIUS = 5.0
SCALE = 0.4
"""Of the worlds of peers whose scale is unknown."""


def ray_depth(camera, pose) -> torch.Tensor:
    """Distance along every ray to the sphere around the origin: |c + t r| = R."""
    rays = camera.unproject_grid()[0].double() @ pose.rotation.double().mT
    center = pose.translation.double()
    along = rays @ center
    return -along + (along.square() + RADIUS**2 - center.dot(center)).sqrt()


@dataclass
class Oracle:
    """What the images show, and which priors a fake was given."""

    images: list[PeerImage] = field(default_factory=list)
    """With true cameras and poses, in the order in which they are shown."""
    scale: float = SCALE
    used: set[str] = field(default_factory=set)
    calls: list[dict] = field(default_factory=list)

    def world(self) -> Pose:
        """peer_from_true: where the peer has its world."""
        turn = Pose.look_at((0.3, -0.2, 0.5), (1.0, 0.4, 2.0)).to(torch.float64)
        return turn

    def poses(self) -> torch.Tensor:
        """world_from_cam in the peer's world."""
        moved = [self.world() @ image.pose.to(torch.float64) for image in self.images]
        return torch.stack([one.scale_translation(self.scale).world_from_cam for one in moved])

    def ray_depths(self) -> torch.Tensor:
        return self.scale * torch.stack([ray_depth(image.camera, image.pose) for image in self.images])

    def rays(self) -> torch.Tensor:
        return torch.stack([image.camera.unproject_grid()[0].double() for image in self.images])

    def z_depths(self) -> torch.Tensor:
        return self.ray_depths() * self.rays()[..., 2]

    def intrinsics(self) -> torch.Tensor:
        return torch.stack([image.camera.central_intrinsics().double() for image in self.images])

    def codes(self) -> torch.Tensor:
        """VGGT's nine numbers; its principal point is the middle."""
        inverse = torch.linalg.inv(self.poses())
        quaternion = quaternion_from_rotation(inverse[:, :3, :3])
        height, width = self.size
        focal = self.intrinsics()[:, [1, 0], [1, 0]]
        fov = 2 * torch.atan(torch.tensor([height, width]).double() / 2 / focal)
        return torch.cat([inverse[:, :3, 3], quaternion, fov], -1).float()

    @property
    def size(self):
        return tuple(self.images[0].image.shape[-2:])

    def check_images(self, images, multiple):
        """Images must be [1 view 3 h w] in [0, 1] with sides in whole patches."""
        assert images.ndim == 5 and images.shape[:3] == (1, len(self.images), 3)
        assert tuple(images.shape[-2:]) == self.size and not any(side % multiple for side in self.size)
        assert float(images.min()) >= 0 and float(images.max()) <= 1

    def check_poses(self, given, known=None):
        """Given world_from_cam must be the true ones, relative to the first that is known."""
        rows = list(range(len(self.images))) if known is None else known
        true = torch.stack([self.images[row].pose.world_from_cam.double() for row in rows])
        found = given.double()[rows]
        relative = torch.linalg.inv(true[:1]) @ true
        shown = torch.linalg.inv(found[:1]) @ found
        assert torch.allclose(shown[:, :3, :3], relative[:, :3, :3], atol=1e-4)
        # Any one scale.
        ratio = shown[1:, :3, 3].norm(dim=-1) / relative[1:, :3, 3].norm(dim=-1).clamp(min=1e-9)
        apart = relative[1:, :3, 3].norm(dim=-1) > 1e-6
        if bool(apart.any()):
            scale = float(ratio[apart].median())
            assert torch.allclose(shown[:, :3, 3], scale * relative[:, :3, 3], atol=1e-3)
        self.used.add("poses")

    def check_intrinsics(self, given):
        assert torch.allclose(given.double(), self.intrinsics(), atol=1e-2)
        self.used.add("calibration")

    def check_rays(self, given):
        assert torch.allclose(given.double(), self.rays(), atol=1e-4)
        self.used.add("calibration")


ORACLE = Oracle()


class Fake(nn.Module):
    """A network with one weight."""

    WEIGHTS = "fake"

    def __init__(self, **options):
        super().__init__()
        self.options = options
        self.weight = nn.Parameter(torch.zeros(1))

    @classmethod
    def from_pretrained(cls, name, **options):
        made = cls()
        made.name = name
        return made


def batch(tensor):
    return tensor[None].float()


class FakeVGGTOmega(Fake):
    def forward(self, images):
        ORACLE.check_images(images, 16)
        depth = batch(ORACLE.z_depths())
        return {
            "pose_enc": ORACLE.codes()[None],
            "depth": depth[..., None],
            "depth_conf": torch.full_like(depth, 2.0),
        }


class FakeOmniVGGT(Fake):
    def forward(
        self,
        images,
        extrinsics=None,
        intrinsics=None,
        depth=None,
        mask=None,
        depth_gt_index=None,
        camera_gt_index=None,
    ):
        ORACLE.check_images(images, 14)
        assert depth.device == images.device and len(depth_gt_index) == 0  # None would crash there
        if len(camera_gt_index):
            assert camera_gt_index[0] == 0
            eye = torch.eye(4).repeat(len(ORACLE.images), 1, 1)
            eye[:, :3] = extrinsics[0]  # cam_from_world
            ORACLE.check_poses(torch.linalg.inv(eye.double()), camera_gt_index)
            ORACLE.check_intrinsics(intrinsics[0])
        z = batch(ORACLE.z_depths())
        return {
            "pose_enc": ORACLE.codes()[None],
            "depth": z[..., None],
            "depth_conf": torch.full_like(z, 2.0),
            "world_points": None,
        }


class FakePi3(Fake):
    def forward(self, imgs):
        ORACLE.check_images(imgs, 14)
        return self.answer()

    def answer(self):
        points = ORACLE.ray_depths()[..., None] * ORACLE.rays()
        return {
            "points": None,
            "local_points": batch(points),
            "conf": torch.full((*batch(points).shape[:-1], 1), -1.0),  # a logit
            "camera_poses": batch(ORACLE.poses()),
        }


class FakePi3X(FakePi3):
    def forward(
        self,
        imgs,
        depths=None,
        intrinsics=None,
        rays=None,
        poses=None,
        with_prior=True,
        mask_add_depth=None,
        mask_add_ray=None,
        mask_add_pose=None,
    ):
        ORACLE.check_images(imgs, 14)
        shape = imgs.shape[:2]
        assert all(
            mask is None or mask.shape == shape for mask in (mask_add_depth, mask_add_ray, mask_add_pose)
        )
        if rays is not None and with_prior and bool(mask_add_ray.all()):
            assert bool((rays[..., 2] > 0).all())  # divided by z
            ORACLE.check_rays(rays[0])
        if poses is not None and with_prior and int(mask_add_pose.sum()) > 1:
            assert rays is not None
            ORACLE.check_poses(poses[0], mask_add_pose[0].nonzero()[:, 0].tolist())
        return {**self.answer(), "rays": batch(ORACLE.rays()), "metric": torch.ones(1)}


class FakeMapAnything(Fake):
    KEYS = ("img", "data_norm_type", "ray_directions", "intrinsics", "camera_poses", "is_metric_scale")

    def __init__(self):
        super().__init__()
        self.encoder = ModuleType("encoder")
        self.encoder.data_norm_type = "dinov2"

    def infer(self, views, memory_efficient_inference=True, use_amp=True, amp_dtype="bf16", **options):
        ORACLE.calls.append({"use_amp": use_amp, **options})
        mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[..., None, None]
        ORACLE.check_images(
            torch.stack([view["img"][0] * deviation + mean for view in views])[None].clamp(0, 1), 14
        )
        posed = [index for index, view in enumerate(views) if "camera_poses" in view]
        for view in views:
            assert set(view) <= set(self.KEYS) and view["data_norm_type"] == ["dinov2"]
            assert not {"intrinsics", "ray_directions"} <= set(view)
        assert not posed or posed[0] == 0
        if all("ray_directions" in view for view in views):
            ORACLE.check_rays(torch.cat([view["ray_directions"] for view in views]))
        if posed:
            given = torch.stack(
                [view["camera_poses"][0] if "camera_poses" in view else torch.eye(4) for view in views]
            )
            ORACLE.check_poses(given, posed)
        rays, depths, poses = ORACLE.rays(), ORACLE.ray_depths(), ORACLE.poses()
        hide = 0.0 if options.get("apply_mask", True) or options.get("mask_edges", True) else 1.0
        return [
            {
                "ray_directions": batch(rays[index]),
                "depth_along_ray": batch(hide * depths[index][..., None]),
                "conf": torch.full((1, *depths.shape[1:]), 2.0),
                "camera_poses": batch(poses[index]),
                "mask": torch.zeros(1, *depths.shape[1:], 1, dtype=torch.bool),
            }
            for index in range(len(views))
        ]


class FakeDA3Net(Fake):
    def forward(
        self,
        x,
        extrinsics=None,
        intrinsics=None,
        export_feat_layers=None,
        infer_gs=False,
        use_ray_pose=False,
        ref_view_strategy="saddle_balanced",
    ):
        mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[..., None, None]
        ORACLE.check_images((x * deviation + mean).clamp(0, 1), 14)
        assert ref_view_strategy == "first"  # otherwise views are reordered
        if extrinsics is not None:
            assert torch.allclose(extrinsics[0, 0], torch.eye(4), atol=1e-5)
            ORACLE.check_poses(torch.linalg.inv(extrinsics[0].double()))
            ORACLE.check_intrinsics(intrinsics[0])
        z = batch(ORACLE.z_depths())
        inverse = torch.linalg.inv(ORACLE.poses())
        return {
            "depth": z,
            "depth_conf": torch.full_like(z, 2.0),
            "extrinsics": batch(inverse[:, :3]),
            "intrinsics": batch(ORACLE.intrinsics()),
        }


class FakeDA3(Fake):
    def __init__(self):
        super().__init__()
        self.model = FakeDA3Net()


class FakeWorldMirror(Fake):
    def forward(self, views, cond_flags=(0, 0, 0), is_inference=True):
        ORACLE.check_images(views["img"], 14)
        if "camera_poses" in views and cond_flags[0]:
            ORACLE.check_poses(views["camera_poses"][0])
        if "camera_intrs" in views and cond_flags[2]:
            ORACLE.check_intrinsics(views["camera_intrs"][0])
        assert cond_flags[1] == 0
        z = batch(ORACLE.z_depths())
        return {
            "camera_poses": batch(ORACLE.poses()),
            "camera_intrs": batch(ORACLE.intrinsics()),
            "depth": z[..., None],
            "depth_conf": torch.full_like(z, 2.0),
        }


class FakeAny3R(Fake):
    def infer(self, images, rays):
        ORACLE.check_images(images, 14)
        ORACLE.check_rays(rays[0])
        depth = batch(ORACLE.ray_depths())
        return {
            "depth": depth,
            "depth_conf": torch.full_like(depth, 2.0),
            "camera_poses": batch(ORACLE.poses()),
            "world_points": None,
        }


class FakeLens(torch.Tensor):
    """Wid3R's camera objects can be joined by torch.cat."""

    @staticmethod
    def make(params):
        return params.as_subclass(FakeLens)[None, :4]


class FakeWid3R(FakePi3):
    def forward(self, imgs, cameras):
        ORACLE.check_images(imgs, 14)
        assert len(cameras) == imgs.shape[1]
        ORACLE.used.add("calibration")
        found = self.answer()
        return {**found, "uncertain": torch.ones_like(found.pop("conf"))}


class FakeMoGe(Fake):
    def infer(self, image, resolution_level=9, apply_mask=True, fov_x=None, use_fp16=True, **options):
        assert image.ndim == 3 and not use_fp16
        truth = ORACLE.images[len(ORACLE.calls)]
        ORACLE.calls.append({"apply_mask": apply_mask})
        height, width = image.shape[-2:]
        if fov_x is not None:
            assert abs(fov_x - float(truth.camera.fov().horizontal_deg)) < 0.5
            ORACLE.used.add("calibration")
        rays = truth.camera.unproject_grid()[0].double()
        k = truth.camera.central_intrinsics().float() / torch.tensor([[width], [height], [1.0]])
        z = ray_depth(truth.camera, truth.pose) * rays[..., 2]
        return {"depth": z.float(), "intrinsics": k, "mask": torch.ones(height, width, dtype=torch.bool)}


class FakeUniK3D(Fake):
    def infer(self, rgb, camera=None, rays=None, normalize=True):
        assert rgb.ndim == 3 and float(rgb.max()) > 1 and not self.training and self.resolution_level == 9
        truth = ORACLE.images[len(ORACLE.calls)]
        ORACLE.calls.append({})
        true_rays = truth.camera.unproject_grid()[0].double()
        if rays is not None:
            assert torch.allclose(rays.movedim(0, -1).double(), true_rays, atol=1e-4)
            ORACLE.used.add("calibration")
        distance = ray_depth(truth.camera, truth.pose).float()
        return {
            "distance": distance[None, None],
            "depth": None,
            "rays": true_rays.float().movedim(-1, 0)[None],
            "confidence": torch.full_like(distance, 0.5)[None, None],
        }


MODULES = {
    "vggt_omega.models": {"VGGTOmega": FakeVGGTOmega},
    "omnivggt.models.omnivggt": {"OmniVGGT": FakeOmniVGGT},
    "pi3.models.pi3": {"Pi3": FakePi3},
    "pi3.models.pi3x": {"Pi3X": FakePi3X},
    "mapanything.models": {"MapAnything": FakeMapAnything},
    "depth_anything_3.api": {"DepthAnything3": FakeDA3},
    "src.models.models.worldmirror": {"WorldMirror": FakeWorldMirror},
    "any3r": {"Any3R": FakeAny3R},
    "wid3r.models.wid3r_training": {"Wid3R": FakeWid3R},
    "cam_utils.camera": {
        name: lambda params: FakeLens.make(params) for name in ("Pinhole", "Spherical", "Fisheye624")
    },
    "moge.model.v2": {"MoGeModel": FakeMoGe},
    "unik3d.models": {"UniK3D": FakeUniK3D},
}
"""What an adapter may import, and what it finds there."""


@contextmanager
def installed(monkeypatch):
    """Make the fakes importable."""
    for name, content in MODULES.items():
        parts = name.split(".")
        for depth in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[:depth]), ModuleType(".".join(parts[:depth])))
        module = ModuleType(name)
        for key, value in content.items():
            setattr(module, key, value)
        monkeypatch.setitem(sys.modules, name, module)
    yield

"""All evaluation protocols by name."""

from typing import Any

from g_ray.reconstruction.set_metrics import METRICS
from g_ray_lab.datasets import da3_bench, dtu, eth3d, kitti, nrgbd, real_small, scannetpp, sintel, tum
from g_ray_lab.datasets import seven_scenes_sequences as seven_scenes
from g_ray_lab.scoring.protocol import (
    AlignedSize,
    CovisibilityWalk,
    ImageSize,
    Listed,
    Part,
    Protocol,
    Sampling,
    Shuffled,
    Spread,
    Strided,
)

VIEW_COUNTS = (2, 4, 8, 16, 24, 32, 50)
TRAJECTORY = ("ate", "rpe_trans", "rpe_rot_deg")
VIDEO_DEPTH = ("abs_rel", "sq_rel", "rmse", "log_rmse", "delta_1.25")
CLOUD = ("acc", "acc_median", "comp", "comp_median", "nc", "nc_median")
DA3 = ("auc_3", "auc_30", "f_score")
WIDE, PANDASET_SIZE = ImageSize(518, 336), ImageSize(518, 294)
WALK_ETH3D = CovisibilityWalk(0.025)
WALK_SCANNETPP = CovisibilityWalk(0.25, balanced=True)
MIXTURE = "no device gets more than half of the views of a set"
PINHOLE = "iPhone frames are undistorted to the widest pinhole without empty pixels"
MASKED = "anonymized pixels are not scored"
DEPTH_POSES = (
    "poses are the depth camera's, 2.5 cm off, as in π³'s evaluation; without published they are right"
)

Scenes = tuple[str, ...]


def _make_walk(
    title: str,
    part: Part,
    dataset: str,
    scenes: Scenes,
    walk: CovisibilityWalk,
    counts: tuple[int, ...] = VIEW_COUNTS,
    size: ImageSize = WIDE,
    **more: Any,
) -> Protocol:
    """Return a protocol of the main table: the six metrics on sets of overlapping views."""
    return Protocol(title, part, dataset, scenes, walk, size, METRICS, "mean distance", counts, **more)


def _make_recording(
    kind: str, title: str, dataset: str, scenes: Scenes, sampling: Sampling, **more: Any
) -> Protocol:
    """Return a homogeneous protocol: strided frames of recordings, scored as poses, video depth or points."""
    width, metrics, alignment = {
        "poses": (512, TRAJECTORY, "sim3"),
        "depth": (512, VIDEO_DEPTH, "scale"),
        "points": (518, CLOUD, "umeyama+icp"),
    }[kind]
    size = AlignedSize(width)
    return Protocol(title, "homogeneous", dataset, scenes, sampling, size, metrics, alignment, **more)


def _make_da3(title: str, dataset: str, scenes: Scenes, **more: Any) -> Protocol:
    """Return a protocol of DA3-BENCH."""
    options = {"metrics": DA3, "alignment": "ransac sim3+tsdf", **more}
    return Protocol(title, "second opinion", dataset, scenes, Shuffled(), AlignedSize(504), **options)


def _publish_da3(auc_3: float, auc_30: float, f_score: float) -> dict[str, dict[str, float]]:
    return {"DA3-Giant": {"auc_3": auc_3, "auc_30": auc_30, "f_score": f_score}}


PROTOCOLS: dict[str, Protocol] = {
    "pandaset": _make_walk(
        "PandaSet, six-camera rig",
        "main table",
        "pandaset",
        (),
        CovisibilityWalk(0.025),
        size=PANDASET_SIZE,
        notes=(
            "all sequences that are there, ten sets each; threshold as for ETH3D",
            "LiDAR points behind nearer ones within 8 px (of 1920) are removed; the car in the back camera is masked",
        ),
    ),
    "eth3d-fov": _make_walk(
        "ETH3D, controlled FoV variation",
        "main table",
        "eth3d",
        eth3d.SCENES,
        WALK_ETH3D,
        zoom_max=3.0,
        notes=(
            "the reference view is the native anchor",
            "a repeated frame gets a zoom of its own each time",
        ),
    ),
    "eth3d-fov-wai": _make_walk(
        "ETH3D as MapAnything distributes it, controlled FoV variation",
        "second opinion",
        "wai",
        eth3d.SCENES,
        WALK_ETH3D,
        zoom_max=3.0,
        notes=("its depth is shifted by half a pixel, and its covisibility is computed again here",),
    ),
    "eth3d-native": _make_walk(
        "ETH3D, native FoV", "resolution figure", "eth3d", eth3d.SCENES, WALK_ETH3D, (4,)
    ),
    "scannetpp-mixed": _make_walk(
        "ScanNet++, mixed projection",
        "main table",
        "scannetpp-mixed",
        scannetpp.VALIDATION_SCENES,
        WALK_SCANNETPP,
        depth="ray",
        notes=(MIXTURE, PINHOLE, MASKED),
    ),
    "scannetpp-joint": _make_walk(
        "ScanNet++, mixed projection, devices calibrated together",
        "second opinion",
        "scannetpp-joint",
        da3_bench.SCANNETPP_SCENES,
        WALK_SCANNETPP,
        depth="ray",
        notes=(MIXTURE, PINHOLE),
    ),
    "scannetpp-undistorted": _make_walk(
        "ScanNet++, both devices undistorted",
        "ablation",
        "scannetpp-undistorted",
        scannetpp.VALIDATION_SCENES,
        WALK_SCANNETPP,
        notes=(MIXTURE, PINHOLE, MASKED),
    ),
    "scannetpp-zoom": _make_walk(
        "ScanNet++, DSLR at full size, zoomed",
        "zoom figure",
        "scannetpp-high-resolution",
        scannetpp.VALIDATION_SCENES[:15],
        CovisibilityWalk(0.25),
        (16,),
        zoom_max=5.0,
        notes=(
            "the paper does not name its 15 scenes: the first of the split",
            "smaller zooms: replace zoom_max",
        ),
    ),
    "scannetpp-wid3r": Protocol(
        "ScanNet++, raw fisheye, Wid3R's frames",
        "second opinion",
        "scannetpp-fisheye",
        scannetpp.VALIDATION_SCENES,
        Listed(
            "scannetpp_mv-recon_seq-id-map.json",
            "github.com/jdk9405/Wid3R, evaluation/datasets/seq-id-maps",
        ),
        AlignedSize(518),
        CLOUD,
        "umeyama+icp",
        depth="ray",
        notes=(
            "Wid3R also fits scale and shift on 5,000 points before ICP: not comparable with π³'s numbers",
        ),
    ),
    "tum-pose": _make_recording(
        "poses", "TUM RGB-D, relative pose", "tum", tum.SEQUENCES, Strided(3, most=90)
    ),
    "sintel-pose": _make_recording("poses", "Sintel, relative pose", "sintel", sintel.SEQUENCES, Strided(1)),
    "sintel-depth": _make_recording(
        "depth", "Sintel, video depth", "sintel", sintel.SEQUENCES, Strided(1), depth_range=(0.0, 70.0)
    ),
    "kitti-depth": _make_recording(
        "depth",
        "KITTI, video depth",
        "kitti",
        kitti.DRIVES,
        Strided(1, most=110),
        windows={"mapanything": 64},
        notes=("MapAnything sees windows of 64 frames, joined by the frames that they share",),
    ),
    "7scenes-sparse": _make_recording(
        "points", "7-Scenes, sparse", "7scenes", seven_scenes.TEST_SCENES, Strided(200)
    ),
    "7scenes-dense": _make_recording(
        "points", "7-Scenes, dense", "7scenes", seven_scenes.TEST_SCENES, Strided(40)
    ),
    "7scenes-sparse-published": _make_recording(
        "points",
        "7-Scenes, sparse, as published",
        seven_scenes.PUBLISHED,
        seven_scenes.TEST_SCENES,
        Strided(200),
        notes=(DEPTH_POSES,),
    ),
    "7scenes-dense-published": _make_recording(
        "points",
        "7-Scenes, dense, as published",
        seven_scenes.PUBLISHED,
        seven_scenes.TEST_SCENES,
        Strided(40),
        notes=(DEPTH_POSES,),
    ),
    "nrgbd-sparse": _make_recording(
        "points",
        "Neural RGB-D, sparse",
        "nrgbd",
        nrgbd.SCENES,
        Strided(500),
        notes=("thin_geometry is a single view",),
    ),
    "nrgbd-dense": _make_recording("points", "Neural RGB-D, dense", "nrgbd", nrgbd.SCENES, Strided(100)),
    "dtu": _make_recording("points", "DTU, points", "dtu", dtu.SCANS, Strided(5)),
    "eth3d-points": _make_recording(
        "points",
        "ETH3D undistorted, points",
        "eth3d",
        eth3d.SCENES,
        Strided(5),
        notes=(
            "ETH3D's own undistorted images, depth looked up along their rays; π³ undistorts with four coefficients "
            "and splats sparse depth, so that numbers are near, not equal",
        ),
    ),
    "da3-eth3d": _make_da3(
        "DA3-BENCH, ETH3D",
        "da3-eth3d",
        da3_bench.ETH3D_SCENES,
        reference=_publish_da3(0.487, 0.915, 0.788),
    ),
    "da3-7scenes": _make_da3(
        "DA3-BENCH, 7-Scenes",
        "da3-7scenes",
        da3_bench.SEVEN_SCENES,
        reference=_publish_da3(0.274, 0.867, 0.504),
    ),
    "da3-scannetpp": _make_da3(
        "DA3-BENCH, ScanNet++",
        "da3-scannetpp",
        da3_bench.SCANNETPP_SCENES,
        reference=_publish_da3(0.847, 0.983, 0.783),
    ),
    "da3-dtu": _make_da3(
        "DA3-BENCH, DTU",
        "da3-dtu",
        dtu.SCANS,
        metrics=("auc_3", "auc_30", "acc", "comp", "overall"),
        reference={"DA3-Giant": {"overall": 1.793}},
        notes=("without depth maps: points of the object are compared with the scan in the observed volume",),
    ),
    "real-small": Protocol(
        "real photographs: red kitchen, Sceaux castle, rectified pairs",
        "real photographs",
        "real-small",
        real_small.SCENES,
        Spread(most=5, sets=2),
        AlignedSize(392),
        METRICS,
        "mean distance",
        depth="ray",
        notes=(
            "truth is Kinect depth, points of structure from motion, and disparity",
            "pairs get a focal length of one image width",
        ),
    ),
}

"""Where evaluation datasets are downloaded, under which license, and what of a download is unpacked where.

Licenses are as far as they are known; the provider's page decides. Nothing is downloaded here: several datasets ask for
an account and for consent.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Download:
    """A dataset as it is distributed. Several entries of `DATASETS` may read it."""

    title: str
    page: str
    license: str
    files: tuple[str, ...]
    """What to download, a sentence each."""
    layout: tuple[str, ...]
    """Paths that must be there after unpacking, for people."""
    archives: tuple[str, ...] = ()
    """Patterns of archives that are unpacked; folders that are unpacked already are linked."""
    nested: tuple[str, ...] = ()
    """Patterns of archives inside of them, each unpacked beside itself."""
    real_levels: int = 0
    """Levels of folders that are made instead of linked, so that something can be put into them."""
    unpack_into: str = "."


DOWNLOADS: dict[str, Download] = {
    "pandaset": Download(
        "PandaSet",
        "https://pandaset.org",
        "CC BY 4.0 with PandaSet's terms of use",
        (
            "the official page is discontinued at times; copies: huggingface.co/datasets/georghess/pandaset, and on "
            "kaggle.com usharengaraju/pandaset-dataset (.pkl instead of .pkl.gz)",
        ),
        ("001/camera/front_camera/00.jpg", "001/camera/front_camera/poses.json", "001/lidar/00.pkl.gz"),
        archives=("pandaset*.zip", "[0-9][0-9][0-9].zip"),
    ),
    "eth3d": Download(
        "ETH3D, high-resolution multi-view",
        "https://www.eth3d.net/datasets",
        "CC BY-NC-SA 4.0",
        (
            "of the 13 training scenes SCENE_dslr_jpg.7z, SCENE_dslr_undistorted.7z and SCENE_dslr_depth.7z, from "
            "https://www.eth3d.net/data/",
        ),
        (
            "courtyard/images/dslr_images/DSC_0286.JPG",
            "courtyard/images/dslr_images_undistorted/DSC_0286.JPG",
            "courtyard/dslr_calibration_jpg/cameras.txt",
            "courtyard/dslr_calibration_undistorted/cameras.txt",
            "courtyard/ground_truth_depth/dslr_images/DSC_0286.JPG",
        ),
        archives=("*_dslr_jpg.7z", "*_dslr_undistorted.7z", "*_dslr_depth.7z"),
    ),
    "scannetpp": Download(
        "ScanNet++ v2",
        "https://kaldir.vc.in.tum.de/scannetpp",
        "ScanNet++ terms of use: non-commercial research, after an application",
        (
            "with the official download script: split nvs_sem_val; dslr/colmap, dslr/resized_images, "
            "dslr/resized_anon_masks, iphone/colmap, iphone/rgb.mkv, scans/mesh_aligned_0.05.ply",
            "for the zoom figure also dslr/original_images",
            "for Wid3R's protocol scannetpp_mv-recon_seq-id-map.json from github.com/jdk9405/Wid3R, "
            "evaluation/datasets/seq-id-maps",
        ),
        (
            "data/7b6477cb95/dslr/colmap/cameras.txt",
            "data/7b6477cb95/dslr/resized_images/DSC03667.JPG",
            "data/7b6477cb95/iphone/colmap/cameras.txt",
            "data/7b6477cb95/iphone/rgb.mkv",
            "data/7b6477cb95/scans/mesh_aligned_0.05.ply",
        ),
    ),
    "scannetpp-joint": Download(
        "ScanNet++, both devices in one COLMAP model",
        "https://huggingface.co/datasets/haotongl/scannetpp_zipnerf",
        "ScanNet++ terms of use: non-commercial research, after an application",
        ("the dataset of that page, or scannetpp.zip of depth-anything/DA3-BENCH",),
        (
            "09c1414f1b/merge_dslr_iphone/colmap/sparse_render_rgb/cameras.bin",
            "09c1414f1b/merge_dslr_iphone/images/iphone/frame_000000.jpg",
            "09c1414f1b/scans/mesh_aligned_0.05.ply",
        ),
        archives=("scannetpp.zip",),
    ),
    "tum": Download(
        "TUM RGB-D, Freiburg 3",
        "https://cvg.cit.tum.de/data/datasets/rgbd-dataset",
        "CC BY 4.0",
        (
            "rgbd_dataset_freiburg3_{sitting,walking}_{static,xyz,halfsphere,rpy}.tgz from "
            "https://cvg.cit.tum.de/rgbd/dataset/freiburg3/",
        ),
        (
            "rgbd_dataset_freiburg3_sitting_static/rgb.txt",
            "rgbd_dataset_freiburg3_sitting_static/groundtruth.txt",
        ),
        archives=("rgbd_dataset_freiburg3_*.tgz",),
    ),
    "sintel": Download(
        "MPI Sintel",
        "http://sintel.is.tue.mpg.de",
        "for research; the film is CC BY 3.0, Blender Foundation",
        ("MPI-Sintel-training_images.zip", "MPI-Sintel-depth-training-20150305.zip"),
        (
            "training/final/alley_2/frame_0001.png",
            "training/depth/alley_2/frame_0001.dpt",
            "training/camdata_left/alley_2/frame_0001.cam",
        ),
        archives=("MPI-Sintel-*.zip",),
    ),
    "kitti": Download(
        "KITTI, annotated depth and raw drives",
        "https://www.cvlibs.net/datasets/kitti",
        "CC BY-NC-SA 3.0",
        (
            "data_depth_annotated.zip",
            "the 13 raw drives of its validation split, synced and rectified (2011_09_26_drive_0002_sync.zip, …)",
            "the calibrations of their five days (2011_09_26_calib.zip, …)",
        ),
        (
            "val/2011_09_26_drive_0002_sync/proj_depth/groundtruth/image_02/0000000005.png",
            "2011_09_26/2011_09_26_drive_0002_sync/image_02/data/0000000005.png",
            "2011_09_26/calib_cam_to_cam.txt",
        ),
        archives=("data_depth_annotated.zip", "2011_*_sync.zip", "2011_*_calib.zip"),
        real_levels=1,
    ),
    "7scenes": Download(
        "7-Scenes",
        "https://www.microsoft.com/en-us/research/project/rgb-d-dataset-7-scenes",
        "Microsoft Research license: non-commercial",
        ("chess.zip, fire.zip, heads.zip, office.zip, pumpkin.zip, redkitchen.zip, stairs.zip",),
        ("chess/seq-03/frame-000000.color.png", "chess/seq-03/frame-000000.pose.txt"),
        archives=(
            "chess.zip",
            "fire.zip",
            "heads.zip",
            "office.zip",
            "pumpkin.zip",
            "redkitchen.zip",
            "stairs.zip",
        ),
        nested=("*/seq-*.zip",),
        real_levels=1,
    ),
    "nrgbd": Download(
        "Neural RGB-D Surface Reconstruction, synthetic scenes",
        "https://github.com/dazinovic/neural-rgbd-surface-reconstruction",
        "no license is stated with the archive: see the project's page",
        ("neural_rgbd_data.zip",),
        ("breakfast_room/images/img0.png", "breakfast_room/depth/depth0.png", "breakfast_room/poses.txt"),
        archives=("neural_rgbd_data.zip",),
    ),
    "dtu": Download(
        "DTU, as Spann3R packs its test scans",
        "https://github.com/HengyiWang/spann3r",
        "no license is stated: for research, cite Jensen et al. 2014",
        ("the archive of DTU that Spann3R's documentation links to",),
        (
            "scan1/images/00000000.jpg",
            "scan1/depths/00000000.npy",
            "scan1/binary_masks/00000000.png",
            "scan1/cams/00000000_cam.txt",
        ),
        archives=("dtu*.zip",),
    ),
    "da3-bench": Download(
        "DA3-BENCH",
        "https://huggingface.co/datasets/depth-anything/DA3-BENCH",
        "those of the datasets in it: ETH3D, 7-Scenes, ScanNet++ (apply there first), DTU",
        ("eth3d.zip, 7scenes.zip, scannetpp.zip, dtu.zip",),
        (
            "eth3d/courtyard/combined_mesh.ply",
            "7scenes/7Scenes/meshes/chess.ply",
            "scannetpp/09c1414f1b/merge_dslr_iphone",
            "dtu/Rectified/scan1",
            "dtu/SampleSet/mvs_data/ObsMask/ObsMask1_10.mat",
        ),
        archives=("eth3d.zip", "7scenes.zip", "scannetpp.zip", "dtu.zip"),
    ),
    "real-small": Download(
        "real photographs: red kitchen, Sceaux castle, rectified pairs",
        "https://www.microsoft.com/en-us/research/project/rgb-d-dataset-7-scenes",
        "7-Scenes: Microsoft Research license, non-commercial; Sceaux: copyright P. Moulon; pairs: Middlebury",
        (
            "100 frames of 7-Scenes' redkitchen as 7scenes_redkitchen100/frame-….{color.jpg,depth.png,pose.txt}",
            "openMVG's ImageDataset_SceauxCastle with a COLMAP model as sceaux/{images,sparse}",
            "opencv_extra's cv/stereomatching/datasets as stereo_disparity, and Middlebury's Motorcycle",
        ),
        (
            "7scenes_redkitchen100/frame-000000.color.jpg",
            "sceaux/sparse/cameras.bin or cameras.txt",
            "stereo_disparity/datasets.xml",
            "middlebury_motorcycle/motorcycle_disp.npz",
        ),
    ),
    "wai": Download(
        "Datasets in MapAnything's layout (WAI)",
        "https://huggingface.co/datasets/facebook/map-anything-benchmarking",
        "those of the datasets in it",
        ("one archive per scene",),
        ("SCENE/scene_meta.json", "SCENE/images", "SCENE/depth or SCENE/rendered_depth"),
        archives=("*.zip",),
    ),
}


def explain(name: str) -> str:
    """Say where a dataset is downloaded, under which license, and what must be there."""
    one = DOWNLOADS[name]
    lines = [one.title, f"  page     {one.page}", f"  license  {one.license}"]
    for head, texts in (("files", one.files), ("layout", one.layout)):
        lines += [f"  {head if i == 0 else '':8} {text}" for i, text in enumerate(texts)]
    return "\n".join(lines)

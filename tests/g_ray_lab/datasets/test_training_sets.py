"""Training sets in their original layouts: miniatures of a rendered room, read back to the same points in the world."""

import json
from math import pi

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.spatial.transform import Rotation

from g_ray.cameras import Pinhole
from g_ray.demo.room import make_random_room
from g_ray.formats import SCENES, find_scenes, read_scene
from g_ray.geometry.pose import Pose
from g_ray.media.depth import convert_to_ray_depth
from g_ray.rays.ray_map import RayMap
from g_ray_lab.datasets.scene_formats import SCENE_FORMATS

OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])
WIDTH, HEIGHT, FOV = 64, 48, pi / 2


class Shots:
    """Four views of a room through one pinhole of 90°, with the world's points that they see."""

    def __init__(self, width=WIDTH, height=HEIGHT, off_center=(0.0, 0.0)):
        room = make_random_room(3, coarse=True)
        center = {"cx": width / 2 + off_center[0], "cy": height / 2 + off_center[1]}
        self.camera = Pinhole.make(width, height, fx=width / 2, fy=width / 2, **center, dtype=torch.float64)
        self.poses, self.pixels, self.z_depth, self.ray_depth, self.points = [], [], [], [], []
        for number in range(4):
            eye = torch.tensor([1.7 * np.sin(0.2 * number), -0.3, 1.7 * np.cos(0.2 * number)]).double()
            pose = Pose.look_at(eye, torch.tensor([0.1, 0.3, 0.0]).double())
            seen = room.render(self.camera.to(torch.float32), pose.to(torch.float32))
            self.poses.append(pose.world_from_cam.numpy())
            self.pixels.append((seen.rgb * 255).round().byte().numpy())
            self.z_depth.append(seen.z_depth.numpy())
            self.ray_depth.append(seen.ray_depth.numpy())
            rays = RayMap.from_camera(self.camera).directions
            self.points.append(pose.apply(seen.ray_depth.double()[..., None] * rays))

    def save_images(self, name):
        for number, pixels in enumerate(self.pixels):
            save(name(number), pixels)

    def save_depth(self, name, per_unit):
        for number, depth in enumerate(self.z_depth):
            save(name(number), (depth * per_unit).round().astype(np.uint16))


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=95)


def flatten(matrix):
    return " ".join(map(repr, np.asarray(matrix).ravel().tolist()))


def write_tartanair(folder, room_scenes):
    shots, scene = Shots(), folder / "hall" / "Easy" / "P000"
    shots.save_images(lambda n: scene / "image_left" / f"{n:06d}_left.png")
    (scene / "depth_left").mkdir()
    lines = []
    for number, (pose, depth) in enumerate(zip(shots.poses, shots.z_depth, strict=True)):
        depth = depth.copy()
        np.save(scene / "depth_left" / f"{number:06d}_left_depth.npy", depth)
        # Columns of the camera's north, east and down: forward, right and down.
        rotation = Rotation.from_matrix(pose[:3, :3][:, [2, 0, 1]])
        lines.append(f"{flatten(pose[:3, 3])} {flatten(rotation.as_quat())}")
    (scene / "pose_left.txt").write_text("\n".join(lines))
    return shots


def write_virtual_kitti(folder, room_scenes):
    shots, scene = Shots(off_center=(0.5, -1.0)), folder / "Scene01" / "clone"
    shots.save_images(lambda n: scene / f"frames/rgb/Camera_0/rgb_{n:05d}.jpg")
    shots.save_depth(lambda n: scene / f"frames/depth/Camera_0/depth_{n:05d}.png", 100)
    lens = f"{WIDTH / 2} {WIDTH / 2} {WIDTH / 2 + 0.5 - 0.5} {HEIGHT / 2 - 1.0 - 0.5}"
    lenses = [f"{n} 0 {lens}" for n in range(4)]
    (scene / "intrinsic.txt").write_text("\n".join(["frame cameraID K[0,0] K[1,1] K[0,2] K[1,2]", *lenses]))
    poses = [f"{n} 0 {flatten(np.linalg.inv(pose))}" for n, pose in enumerate(shots.poses)]
    (scene / "extrinsic.txt").write_text("\n".join(["frame cameraID r1,1 …", *poses]))
    return shots


def write_wildrgbd(folder, room_scenes):
    shots, scene = Shots(off_center=(1.0, 2.0)), folder / "apple" / "scenes" / "scene_000"
    shots.save_images(lambda n: scene / f"rgb/{n:05d}.png")
    shots.save_depth(lambda n: scene / f"depth/{n:05d}.png", 1000)
    matrix = np.array([[WIDTH / 2, 0, WIDTH / 2 + 1], [0, WIDTH / 2, HEIGHT / 2 + 2], [0, 0, 1]])
    document = {"w": WIDTH, "h": HEIGHT, "K": matrix.T.ravel().tolist()}
    (scene / "metadata").write_text(json.dumps(document))
    lines = [f"{n} {flatten(pose)}" for n, pose in enumerate(shots.poses)]
    (scene / "cam_poses.txt").write_text("\n".join(lines))
    return shots


def write_arkitscenes(folder, room_scenes):
    shots, scene = Shots(off_center=(1.0, 2.0)), folder / "Training" / "41069021"
    times = [100.1 + 0.1 * n for n in range(4)]
    shots.save_images(lambda n: scene / f"lowres_wide/41069021_{times[n]:.3f}.png")
    shots.save_depth(lambda n: scene / f"lowres_depth/41069021_{times[n]:.3f}.png", 1000)
    save(scene / "lowres_wide/41069021_200.000.png", shots.pixels[0])  # no pose
    lines = []
    for time_s, pose in zip(times, shots.poses, strict=True):
        cam_from_world = np.linalg.inv(pose)
        turn = Rotation.from_matrix(cam_from_world[:3, :3]).as_rotvec()
        lines.append(f"{time_s + 0.0004} {flatten(turn)} {flatten(cam_from_world[:3, 3])}")
        pincam = scene / "lowres_wide_intrinsics" / f"41069021_{time_s + 0.001:.3f}.pincam"
        pincam.parent.mkdir(exist_ok=True)
        pincam.write_text(f"{WIDTH} {HEIGHT} {WIDTH / 2} {WIDTH / 2} {WIDTH / 2 + 1} {HEIGHT / 2 + 2}")
    (scene / "lowres_wide.traj").write_text("\n".join(lines))
    return shots


def write_matterport(folder, room_scenes):
    shots, scene = Shots(off_center=(1.0, 2.0)), folder / "1pXnuDYAj8r"
    shots.save_images(lambda n: scene / f"undistorted_color_images/a_i0_{n}.jpg")
    shots.save_depth(lambda n: scene / f"undistorted_depth_images/a_d0_{n}.png", 4000)
    # From the bottom left: two pixels below the middle is two less.
    lens = f"{WIDTH / 2} 0 {WIDTH / 2 + 1} 0 {WIDTH / 2} {HEIGHT / 2 - 2} 0 0 1"
    lines = ["dataset matterport", "n_images 4", f"intrinsics_matrix {lens}"]
    lines += [f"scan a_d0_{n}.png a_i0_{n}.jpg {flatten(p @ OPENGL)}" for n, p in enumerate(shots.poses)]
    parameters = scene / "undistorted_camera_parameters" / f"{scene.name}.conf"
    parameters.parent.mkdir()
    parameters.write_text("\n".join(lines))
    return shots


def write_omniobject3d(folder, room_scenes):
    shots, scene = Shots(), folder / "apple" / "apple_001" / "render"
    shots.save_images(lambda n: scene / f"images/r_{n}.png")
    for number, depth in enumerate(shots.z_depth):
        room_scenes.write_exr(scene / f"depths/r_{number}_depth.exr", depth, "R")
    frames = [
        {"file_path": f"r_{n}", "transform_matrix": (pose @ OPENGL).tolist()}
        for n, pose in enumerate(shots.poses)
    ]
    (scene / "transforms.json").write_text(json.dumps({"camera_angle_x": FOV, "frames": frames}))
    return shots


def write_matrixcity(folder, room_scenes):
    shots, scene = Shots(), folder / "small_city" / "aerial" / "block_1"
    shots.save_images(lambda n: scene / f"rgb/{n:04d}.png")
    frames = []
    for number, (pose, depth) in enumerate(zip(shots.poses, shots.z_depth, strict=True)):
        room_scenes.write_exr(scene / f"depth/{number:04d}.exr", depth * 100, "R")
        matrix = pose @ OPENGL
        matrix[:3, :3] /= 100
        frames.append({"frame_index": number, "rot_mat": matrix.tolist()})
    (scene / "transforms.json").write_text(json.dumps({"camera_angle_x": FOV, "frames": frames}))
    return shots


def write_taskonomy(folder, room_scenes):
    shots, scene = Shots(), folder / "adairsville"
    shots.save_images(lambda n: scene / f"rgb/point_7_view_{n}_domain_rgb.png")
    shots.save_depth(lambda n: scene / f"depth_zbuffer/point_7_view_{n}_domain_depth_zbuffer.png", 512)
    write_point_info(scene / "point_info", shots)
    return shots


def write_point_info(folder, shots):
    folder.mkdir(parents=True)
    for number, pose in enumerate(shots.poses):
        # Extrinsic x, y, z is Blender's XYZ.
        angles = Rotation.from_matrix((pose @ OPENGL)[:3, :3]).as_euler("xyz").tolist()
        info = {"camera_location": pose[:3, 3].tolist(), "camera_rotation_final": angles}
        path = folder / f"point_7_view_{number}_domain_point_info.json"
        path.write_text(json.dumps({**info, "field_of_view_rads": FOV}))


def write_omnidata(folder, room_scenes):
    shots, building = Shots(), "hm3d/00000-kfPV7w3FaU5"
    shots.save_images(lambda n: folder / f"rgb/{building}/point_7_view_{n}_domain_rgb.png")
    depth = folder / "depth_zbuffer" / building
    shots.save_depth(lambda n: depth / f"point_7_view_{n}_domain_depth_zbuffer.png", 512)
    write_point_info(folder / "point_info" / building, shots)
    return shots


def write_omniworld(folder, room_scenes):
    shots, scene = Shots(off_center=(1.0, 2.0)), folder / "b04f88d1f85a"
    shots.save_images(lambda n: scene / f"color/{n + 10:06d}.png")
    for number, depth in enumerate(shots.z_depth):
        unit = 1000 * 0.004 * depth / (1 + 999 * 0.004 * depth)  # the decoding, solved for the number
        save(scene / f"depth/{number + 10:06d}.png", (unit * 65535).round().astype(np.uint16))
    (scene / "split_info.json").write_text(json.dumps({"split": [[0], [10, 11, 12, 13]]}))
    inverse = [np.linalg.inv(pose) for pose in shots.poses]
    quats = [Rotation.from_matrix(each[:3, :3]).as_quat()[[3, 0, 1, 2]].tolist() for each in inverse]
    document = {"focals": [WIDTH / 2] * 4, "cx": WIDTH / 2 + 1, "cy": HEIGHT / 2 + 2}
    document |= {"quats": quats, "trans": [each[:3, 3].tolist() for each in inverse]}
    (scene / "camera").mkdir()
    (scene / "camera" / "split_1.json").write_text(json.dumps(document))
    return shots


def write_hypersim(folder, room_scenes):
    h5py = pytest.importorskip("h5py")
    shots, scene = Shots(off_center=(1.0, 2.0)), folder / "ai_001_001"
    shots.save_images(lambda n: scene / f"images/scene_cam_00_final_preview/frame.{n:04d}.tonemap.jpg")

    def store(path, array):
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w") as file:
            file["dataset"] = array

    for number, depth in enumerate(shots.ray_depth):
        geometry = scene / "images" / "scene_cam_00_geometry_hdf5"
        store(geometry / f"frame.{number:04d}.depth_meters.hdf5", depth.astype(np.float16))
    detail = scene / "_detail" / "cam_00"
    poses = np.stack([pose @ OPENGL for pose in shots.poses])
    store(detail / "camera_keyframe_positions.hdf5", poses[:, :3, 3] / 0.0254)
    store(detail / "camera_keyframe_orientations.hdf5", poses[:, :3, :3])
    metadata = scene / "_detail" / "metadata_scene.csv"
    metadata.write_text("parameter_name, parameter_value\nmeters_per_asset_unit, 0.0254\n")
    # OpenGL: x_clip = (M00 x + M02 z) / −z and y_clip likewise, with the camera looking along −z.
    projection = np.zeros((4, 4))
    projection[0, 0], projection[1, 1] = 1.0, WIDTH / HEIGHT
    projection[0, 2], projection[1, 2] = -2 * 1.0 / WIDTH, 2 * 2.0 / HEIGHT
    projection[2, 2], projection[2, 3], projection[3, 2] = -1.0, -2.0, -1.0
    names = [f"M_proj_{i}{j}" for i in range(4) for j in range(4)]
    heads = ["scene_name", "settings_output_img_width", "settings_output_img_height", *names]
    values = ["ai_001_001", WIDTH, HEIGHT, *projection.ravel().tolist()]
    table = "\n".join(",".join(map(str, line)) for line in (heads, values))
    (folder / "metadata_camera_parameters.csv").write_text(table)
    return shots


def write_midair(folder, room_scenes):
    h5py = pytest.importorskip("h5py")
    shots, climate = Shots(), folder / "Kite_training" / "sunny"
    shots.save_images(lambda n: climate / f"color_left/trajectory_0003/{n:06d}.JPEG")
    for number, depth in enumerate(shots.ray_depth):
        # Half floats, whose bits are written as an integer.
        save(climate / f"depth/trajectory_0003/{number:06d}.PNG", depth.astype(np.float16).view(np.uint16))
    positions, attitudes = np.zeros((16, 3)), np.zeros((16, 4))
    for number, pose in enumerate(shots.poses):
        # Columns of the body's north, east and down: forward, right and down.
        quaternion = Rotation.from_matrix(pose[:3, :3][:, [2, 0, 1]]).as_quat()
        positions[4 * number], attitudes[4 * number] = pose[:3, 3], quaternion[[3, 0, 1, 2]]
    with h5py.File(climate / "sensor_records.hdf5", "w") as file:
        file["trajectory_0003/groundtruth/position"] = positions
        file["trajectory_0003/groundtruth/attitude"] = attitudes
    return shots


WRITERS = {
    "arkitscenes": write_arkitscenes,
    "hypersim": write_hypersim,
    "matrixcity": write_matrixcity,
    "matterport": write_matterport,
    "midair": write_midair,
    "omnidata": write_omnidata,
    "omniobject3d": write_omniobject3d,
    "omniworld": write_omniworld,
    "tartanair": write_tartanair,
    "taskonomy": write_taskonomy,
    "virtual_kitti": write_virtual_kitti,
    "wildrgbd": write_wildrgbd,
}
every_layout = pytest.mark.parametrize("layout", WRITERS)


@every_layout
def test_points_in_the_world_are_where_they_were(layout, tmp_path, room_scenes):
    shots = WRITERS[layout](tmp_path, room_scenes)
    (folder,) = find_scenes(tmp_path)
    scene = read_scene(folder)
    assert scene.kind == {**SCENES, **SCENE_FORMATS}[layout].title and len(scene) == 4
    for view in range(4):
        rays = RayMap.from_camera(scene.cameras[view])
        file = scene.depth[view]
        along, valid = convert_to_ray_depth(file.read().double(), rays, file.convention)
        points = scene.poses[view].apply(along[..., None] * rays.directions)
        assert valid.all()
        # Centimeters and half floats round by up to a centimeter at the room's size.
        assert (points - shots.points[view]).abs().max() < 0.012, view
        assert (
            scene.views[view].load_image() - torch.from_numpy(shots.pixels[view]).movedim(-1, 0) / 255
        ).abs().mean() < 0.05


@every_layout
def test_missing_and_broken_files_are_one_line(layout, tmp_path, room_scenes):
    WRITERS[layout](tmp_path, room_scenes)
    (folder,) = find_scenes(tmp_path)
    documents = [p for p in folder.rglob("*") if p.suffix in (".txt", ".json", ".conf", ".traj", ".csv", "")]
    documents = [path for path in documents if path.is_file() and path.name != "split_info.json"]
    for path in documents[:2]:
        content = path.read_bytes()
        path.write_text("nonsense 1 2\nnonsense 3")
        with pytest.raises((ValueError, OSError)) as caught:
            read_scene(folder, check=False)
        assert "\n" not in str(caught.value) and str(folder.name) in str(caught.value)
        path.write_bytes(content)
    read_scene(folder, check=False)


def test_sky_has_no_depth(tmp_path, room_scenes):
    write_tartanair(tmp_path, room_scenes)
    (folder,) = find_scenes(tmp_path)
    path = folder / "depth_left" / "000000_left_depth.npy"
    depth = np.load(path)
    depth[:5] = 20_000.0
    np.save(path, depth)
    read = read_scene(folder).depth[0].read()
    assert (read[:5] == 0).all() and (read[5:] > 0).all()


def test_hm3d_of_omnidata_below_a_link_and_with_depth_along_the_ray(tmp_path, room_scenes):
    shots = write_omnidata(tmp_path / "omnidata", room_scenes)
    (tmp_path / "hm3d").symlink_to(tmp_path / "omnidata" / "rgb" / "hm3d")
    zbuffer, euclidean = (tmp_path / "omnidata" / f"depth_{name}" for name in ("zbuffer", "euclidean"))
    zbuffer.rename(tmp_path / "elsewhere")
    for number, depth in enumerate(shots.ray_depth):
        name = f"hm3d/00000-kfPV7w3FaU5/point_7_view_{number}_domain_depth_euclidean.png"
        save(euclidean / name, (depth * 512).round().astype(np.uint16))
    (folder,) = find_scenes(tmp_path / "hm3d")
    scene = read_scene(folder)
    assert scene.kind == "Omnidata" and {file.convention for file in scene.depth} == {"ray"}
    assert (scene.depth[2].read() - torch.from_numpy(shots.ray_depth[2])).abs().max() < 1 / 512
    info = tmp_path / "omnidata/point_info/hm3d/00000-kfPV7w3FaU5/point_7_view_1_domain_point_info.json"
    info.write_text('{"camera_location": [1, 2]}')
    with pytest.raises(ValueError, match=r"point_7_view_1_domain_point_info.json: its rotation"):
        read_scene(folder)


def test_other_components_of_omnidata_are_not_read(tmp_path, room_scenes):
    write_omnidata(tmp_path, room_scenes)
    for domain in ("rgb", "depth_zbuffer", "point_info"):
        (tmp_path / domain / "hm3d").rename(tmp_path / domain / "hypersim")
    with pytest.raises(ValueError, match="no scene folder in it"):
        find_scenes(tmp_path)


def test_flights_of_midair_without_a_pose_are_refused(tmp_path, room_scenes):
    shots = write_midair(tmp_path, room_scenes)
    (folder,) = find_scenes(tmp_path)
    save(folder / "000004.JPEG", shots.pixels[0])
    with pytest.raises(ValueError, match=r"000004.JPEG: no pose"):
        read_scene(folder)
    (folder.parent.parent / "sensor_records.hdf5").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"sensor_records.hdf5: cannot be read as HDF5") as caught:
        read_scene(folder)
    assert "\n" not in str(caught.value)


def test_tilted_sensors_of_hypersim_are_refused(tmp_path, room_scenes):
    write_hypersim(tmp_path, room_scenes)
    path = tmp_path / "metadata_camera_parameters.csv"
    heads, values = (line.split(",") for line in path.read_text().splitlines())
    values[heads.index("M_proj_10")] = "0.2"
    path.write_text("\n".join(map(",".join, (heads, values))))
    with pytest.raises(ValueError, match="tilted"):
        read_scene(tmp_path / "ai_001_001")

"""Two photographs through different lenses, and what a fisheye between them would see.

The network that comes with the package has been trained on rooms through lenses of 60° to 80°. Here a room that it has
never seen is photographed through one of 70° and one of 85°; the fisheye is a lens it has never seen at all. Run it
with: python examples/synthesize_room.py [PICTURE.png]
"""

import sys
from pathlib import Path

import torch

from g_ray import OpenCVFisheye, Pinhole, Pose
from g_ray.demo.room import make_random_room
from g_ray.synthesis.synthesizer import Synthesizer, load_network
from g_ray.viewer.animation import save_picture
from g_ray_lab.metrics.image_metrics import psnr

SEED = 7


def main(out: Path) -> None:
    cameras = [Pinhole.from_fov(70.0, 144, 144), Pinhole.from_fov(85.0, 144, 144)]
    targets = {
        "zoom": Pinhole.from_fov(45.0, 144, 144),
        "fisheye": OpenCVFisheye.make(144, 144, fx=90.0, fy=90.0, cx=72.0, cy=72.0, k1=0.02),
    }
    eyes = torch.tensor([[-0.35, -0.3, 1.7], [0.35, -0.2, 1.6], [0.05, -0.25, 1.65]])
    poses = Pose.look_at(eyes, torch.tensor([0.1, -0.1, 0.0]).expand(3, 3))

    room = make_random_room(SEED, solids=5, coarse=True)
    photos = [room.render(c, poses[i], antialias=2).rgb.movedim(-1, 0) for i, c in enumerate(cameras)]

    network = load_network("nvs-rooms")
    scene = Synthesizer(network, photos, cameras, poses[:2])
    rows = [torch.cat(photos, -1)]
    for name, camera in targets.items():
        predicted = scene.render(camera, poses[2])
        small = camera.resize(*scene.choose_target_size(camera))
        truth = room.render(small, poses[2], antialias=4).rgb.movedim(-1, 0)
        quality = psnr(truth[None, None], predicted[None, None]).item()
        angle = camera.fov().horizontal_deg.item()
        print(f"{name}: {camera.NAME}, {angle:.0f}°, {small.width}×{small.height} px, PSNR {quality:.1f} dB")
        rows.append(torch.nn.functional.interpolate(torch.cat([truth, predicted], -1)[None], (144, 288))[0])
    save_picture(out, torch.cat(rows, -2))
    print(f"{out}: the photographs; then truth and prediction for each target")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/synthesize_room.png"))

"""Views of images and cameras."""

from g_ray.media.view import View


def make_views(images, cameras, poses=None, names=None, masks=None) -> list[View]:
    """Make a view of each image with its camera, and a pose and a mask if there are any."""
    count = len(images)
    parts = (
        names or [f"view_{index:04d}" for index in range(count)],
        cameras,
        poses or [None] * count,
        images,
        masks or [None] * count,
    )
    return [
        View(name, camera, pose, image=image, mask=mask)
        for name, camera, pose, image, mask in zip(*parts, strict=True)
    ]

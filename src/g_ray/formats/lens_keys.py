"""Recognize keys that change a lens by their names, in files whose other keys may be anything."""

import re
from functools import lru_cache

_LENS = re.compile(
    r"dist(?!ance)|lens|fisheye|omni|equirect|panorama|is\w*(fisheye|omni|equi|pano)|xi\d?$|skew|shear|tilt|tau[xy]?$"
    r"|ftheta|camera(model|type)|projection(type|model)|[kpsb]\d+$"
)


@lru_cache(maxsize=4096)
def names_lens(key: str) -> bool:
    """Return whether a key is called like distortion, a coefficient of it, or a camera model, in any spelling."""
    return _LENS.match(re.sub(r"[^a-z0-9]", "", key[:80].lower())) is not None

"""What goes into pages that need no network: pictures, numbers and the page's own files as text."""

import base64
import json
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image


def read_asset(name: str) -> str:
    """A file of this package as text."""
    return (files("g_ray.viewer") / name).read_text(encoding="utf-8")


def make_data_uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def encode_jpeg(pixels: UInt8[np.ndarray, "h w 3"], quality: int = 85) -> bytes:
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, format="JPEG", quality=quality)
    return buffer.getvalue()


def encode_script_json(value: Any) -> str:
    """JSON inside a script element: no text in it can close the element."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def encode_array(array: np.ndarray) -> str:
    """Numbers for a typed array: little-endian, base64."""
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()

"""Encode pictures, numbers and packaged files as text, for HTML pages that need no network and no other file."""

import base64
import json
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image


def read_asset(name: str) -> str:
    """Read a text file of this package (HTML, JavaScript, CSS)."""
    return (files("g_ray.viewer") / name).read_text(encoding="utf-8")


def make_data_uri(content: bytes, kind: str) -> str:
    """Return an encoded image as a data URI."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def encode_jpeg(pixels: UInt8[np.ndarray, "h w 3"], quality: int = 85) -> bytes:
    """Encode pixels as JPEG."""
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, format="JPEG", quality=quality)
    return buffer.getvalue()


def encode_script_json(value: Any) -> str:
    """Encode JSON for a script element; `<` is escaped, so that no string can close the element."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def encode_array(array: np.ndarray) -> str:
    """Encode an array for a JavaScript typed array: little-endian, base64."""
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()

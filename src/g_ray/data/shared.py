"""Where real data lies that no repository holds."""

import os
from pathlib import Path


def find_shared_data() -> Path:
    """The folder `shared/data` beside the checkout, or where G_RAY_SHARED_DATA says; it may not be there."""
    beside = Path(__file__).resolve().parents[4] / "shared" / "data"
    return Path(os.environ.get("G_RAY_SHARED_DATA", beside))

"""`python -m g_ray` is `g-ray`."""

import sys

from g_ray.cli.main import main

sys.exit(main())

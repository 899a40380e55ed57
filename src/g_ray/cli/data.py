"""`g-ray data`: make data sets, and check them."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from g_ray.cli.data_check import Check
from g_ray.cli.data_objects import Objects, Sheet
from g_ray.cli.data_objects_index import ObjectsIndex
from g_ray.cli.data_re10k import RE10KCheck


@dataclass(frozen=True)
class Data:
    """Make data sets, and check them."""

    what: (
        Annotated[Check, tyro.conf.subcommand("check")]
        | Annotated[Objects, tyro.conf.subcommand("objects")]
        | Annotated[ObjectsIndex, tyro.conf.subcommand("objects-index")]
        | Annotated[Sheet, tyro.conf.subcommand("sheet")]
        | Annotated[RE10KCheck, tyro.conf.subcommand("re10k-check")]
    )

    def run(self) -> int | None:
        return self.what.run()

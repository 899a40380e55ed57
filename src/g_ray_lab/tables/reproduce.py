"""`g-ray reproduce`: the tables and figures of the paper."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from g_ray_lab.tables.ablation_tables import ReconAblation, ReconConverged
from g_ray_lab.tables.attention_table import Attention
from g_ray_lab.tables.calibration_tables import CalibrationEstimated, CalibrationNoise
from g_ray_lab.tables.coordinate_tables import CoordinatesTable, FrequencyRecon
from g_ray_lab.tables.dataset_tables import Heterogeneous, Homogeneous, RealSmall
from g_ray_lab.tables.factor_tables import NVSPlucker, NVSRayRoPE
from g_ray_lab.tables.object_table import NVSObjects
from g_ray_lab.tables.qualitative_figure import Qualitative
from g_ray_lab.tables.runtime_table import Runtime
from g_ray_lab.tables.scene_tables import ReconAblationDino, ReconPhotos
from g_ray_lab.tables.stress_tables import FovStress, Resolution
from g_ray_lab.tables.trajectory_figure import NVSTrajectory
from g_ray_lab.tables.zoom_tables import NVSFov, NVSFrequency, NVSZoom


@dataclass(frozen=True)
class Reproduce:
    """Make a table of the paper: train its rows and score them, or score finished models."""

    what: (
        Annotated[NVSFov, tyro.conf.subcommand("nvs-fov")]
        | Annotated[NVSZoom, tyro.conf.subcommand("nvs-zoom")]
        | Annotated[NVSRayRoPE, tyro.conf.subcommand("nvs-rayrope")]
        | Annotated[NVSPlucker, tyro.conf.subcommand("nvs-plucker")]
        | Annotated[NVSObjects, tyro.conf.subcommand("nvs-objects")]
        | Annotated[NVSFrequency, tyro.conf.subcommand("nvs-frequency")]
        | Annotated[NVSTrajectory, tyro.conf.subcommand("nvs-trajectory")]
        | Annotated[ReconAblation, tyro.conf.subcommand("recon-ablation")]
        | Annotated[ReconConverged, tyro.conf.subcommand("recon-converged")]
        | Annotated[ReconAblationDino, tyro.conf.subcommand("recon-ablation-dino")]
        | Annotated[ReconPhotos, tyro.conf.subcommand("recon-photos")]
        | Annotated[CoordinatesTable, tyro.conf.subcommand("coordinates")]
        | Annotated[FrequencyRecon, tyro.conf.subcommand("frequency-recon")]
        | Annotated[Attention, tyro.conf.subcommand("attention")]
        | Annotated[CalibrationNoise, tyro.conf.subcommand("calibration-noise")]
        | Annotated[CalibrationEstimated, tyro.conf.subcommand("calibration-estimated")]
        | Annotated[Runtime, tyro.conf.subcommand("runtime")]
        | Annotated[Heterogeneous, tyro.conf.subcommand("recon-heterogeneous")]
        | Annotated[Homogeneous, tyro.conf.subcommand("recon-homogeneous")]
        | Annotated[Qualitative, tyro.conf.subcommand("recon-qualitative")]
        | Annotated[FovStress, tyro.conf.subcommand("fov-stress")]
        | Annotated[Resolution, tyro.conf.subcommand("resolution")]
        | Annotated[RealSmall, tyro.conf.subcommand("real-small")]
    )

    def run(self) -> None:
        self.what.run()

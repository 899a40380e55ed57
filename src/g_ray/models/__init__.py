"""Networks that receive their encoding: no camera is stored on a module.

Names are imported when first used: the settings in this package are read by the command line, which does not import
torch.
"""

from typing import TYPE_CHECKING

from g_ray.runtime import make_getattr

if TYPE_CHECKING:
    from g_ray.models.heads import Prediction as Prediction
    from g_ray.models.lvsm import LVSM as LVSM
    from g_ray.models.lvsm_config import METHODS as METHODS
    from g_ray.models.lvsm_config import SIZES as SIZES
    from g_ray.models.lvsm_config import LVSMConfig as LVSMConfig
    from g_ray.models.lvsm_config import Method as Method
    from g_ray.models.reconstruction_config import RECONSTRUCTION_METHODS as RECONSTRUCTION_METHODS
    from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES as RECONSTRUCTION_SIZES
    from g_ray.models.reconstruction_config import ReconstructionConfig as ReconstructionConfig
    from g_ray.models.reconstruction_config import ReconstructionMethod as ReconstructionMethod
    from g_ray.models.reconstruction_network import ReconstructionModel as ReconstructionModel

_HOME = {
    "LVSM": "g_ray.models.lvsm",
    "LVSMConfig": "g_ray.models.lvsm_config",
    "METHODS": "g_ray.models.lvsm_config",
    "Method": "g_ray.models.lvsm_config",
    "Prediction": "g_ray.models.heads",
    "RECONSTRUCTION_METHODS": "g_ray.models.reconstruction_config",
    "RECONSTRUCTION_SIZES": "g_ray.models.reconstruction_config",
    "ReconstructionConfig": "g_ray.models.reconstruction_config",
    "ReconstructionMethod": "g_ray.models.reconstruction_config",
    "ReconstructionModel": "g_ray.models.reconstruction_network",
    "SIZES": "g_ray.models.lvsm_config",
}

__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:
    __getattr__ = make_getattr(__name__, _HOME)

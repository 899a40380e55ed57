"""AdamW with weight decay where it belongs."""

from torch import nn
from torch.optim import AdamW

from g_ray.training.recipe import OptimizerSettings


def build_optimizer(model: nn.Module, settings: OptimizerSettings) -> AdamW:
    """Matrices decay, vectors do not.

    Deciding by the number of axes and not by name keeps decay away from biases as well as norms; the released NVS code
    asks for "norm" in the name and so pulls the bias of RayRoPE's depth predictor, which starts at 3, towards zero.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return AdamW(groups, lr=0.0, betas=settings.betas, eps=settings.eps)

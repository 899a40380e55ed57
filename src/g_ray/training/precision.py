"""Half precision: autocast for the arithmetic, a scaled loss for fp16."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from g_ray.training.recipe import PrecisionName

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast_to(precision: PrecisionName, device: torch.device) -> AbstractContextManager[object]:
    """Autocast to the named precision; weights stay in fp32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])


@dataclass
class LossScale:
    """Keeps fp16 gradients above underflow, by the rule and the numbers of torch.amp.GradScaler.

    The loss is multiplied by `scale`; after an overflow the scale is halved, after 2000 good steps it is doubled.
    Whether a step overflowed is read off the global gradient norm, which all ranks share under DDP and FSDP2 alike
    (GradScaler looks at local shards only).
    """

    scale: float = 65536.0
    good_steps: int = 0
    enabled: bool = True

    GROWTH_INTERVAL = 2000
    SMALLEST = 2.0**-10

    @classmethod
    def from_precision(cls, precision: PrecisionName) -> "LossScale":
        return cls() if precision == "fp16" else cls(scale=1.0, enabled=False)

    def update(self, finite: bool) -> None:
        if not self.enabled:
            return
        if not finite:
            self.scale, self.good_steps = self.scale * 0.5, 0
        else:
            self.good_steps += 1
            if self.good_steps == self.GROWTH_INTERVAL:
                self.scale, self.good_steps = self.scale * 2.0, 0

    def tolerates_overflow(self) -> bool:
        """Overflow is part of finding the scale, until the scale is so small that it cannot be the reason."""
        return self.enabled and self.scale > self.SMALLEST

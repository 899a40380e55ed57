"""Random but sensible parameters for `Camera.example`."""

import random


class ParameterSampler:
    """Uniform numbers from a seed: ``draw = ParameterSampler(seed, width, height)``, then ``draw(low, high)``."""

    def __init__(self, seed: int, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._random = random.Random(seed)

    def __call__(self, low: float | int, high: float | int) -> float:
        return self._random.uniform(low, high)

    def sample_intrinsics(self, low: float | int, high: float | int) -> dict[str, float]:
        """Draw fx, fy between low and high image widths, and a principal point near the middle."""
        f = self(low, high) * self.width
        return {
            "fx": f,
            "fy": f * self(0.95, 1.05),
            "cx": self.width * self(0.45, 0.55),
            "cy": self.height * self(0.45, 0.55),
        }

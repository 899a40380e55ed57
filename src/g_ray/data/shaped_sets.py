"""What streams of sets share: batches whose number of sets, views and rows is drawn anew for every step."""

from abc import abstractmethod

from g_ray.data.dynamic_batch import DynamicBatch
from g_ray.data.reconstruction import ReconstructionBatch, ReconstructionSource
from g_ray.data.splits import HELD_OUT


class ShapedSets(ReconstructionSource):
    """A source that makes any stretch of its stream in any shape; the settings of `DynamicBatch` are among its own."""

    seed: int
    batch_size: int
    views: tuple[int, int]
    width: int
    height: int
    aspect: tuple[float, float]
    images_max: int | None
    patch: int

    @abstractmethod
    def make_sets(
        self, numbers: range, rank: int = 0, *, views: int | None = None, height: int | None = None
    ) -> ReconstructionBatch:
        """A stretch of the stream; without a number of views the most that a set has, at the tallest height."""

    def make_batch(self, step: int, rank: int = 0) -> ReconstructionBatch:
        shape = self.make_dynamic_batch().draw_shape(step)
        numbers = range(step * self.batch_size, step * self.batch_size + shape.sets)
        return self.make_sets(numbers, rank, views=shape.views, height=shape.height)

    def make_held_out(self) -> ReconstructionBatch:
        return self.make_batch(0, HELD_OUT)

    def make_dynamic_batch(self) -> DynamicBatch:
        return DynamicBatch(
            self.seed,
            self.batch_size,
            self.views,
            self.width,
            self.height,
            self.aspect,
            self.images_max,
            self.patch,
        )

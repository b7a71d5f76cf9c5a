"""What a request may ask for: the table of sampling ranges, and the limits of one worker."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.worker.model import ImageGeometry, ModelFacts


@dataclass(frozen=True)
class Range:
    """An interval; `open_low`: its lower bound does not belong to it."""

    low: float
    high: float
    open_low: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value lies inside; NaN, which compares with nothing, never does."""
        above = value > self.low if self.open_low else value >= self.low
        return above and value <= self.high

    def __str__(self) -> str:
        return f"{'above' if self.open_low else 'from'} {self.low:g} to {self.high:g}"


SAMPLING_RANGES: Mapping[str, Range] = {
    "temperature": Range(0, 2),
    "top_p": Range(0, 1, open_low=True),
    "min_p": Range(0, 1),
    "presence_penalty": Range(-2, 2),
    "frequency_penalty": Range(-2, 2),
    "repetition_penalty": Range(0, 2, open_low=True),
    "logprobs": Range(0, 20),
    "n": Range(1, 16),
}
"""Fields of hotline.v1.SamplingParameters whose range depends on nothing else."""

PRIORITIES = Range(-100, 100)
LOGIT_BIASES = Range(-100, 100)
MAX_LOGIT_BIASES = 1024
MAX_STOP_TOKENS = 64
MAX_SALT_BYTES = 64
MAX_TRACE_KEY_BYTES = 64
MAX_ID_LENGTH = 128
MAX_SCHEMA_BYTES = 64 * 1024
MAX_REGEX_BYTES = 4 * 1024
MAX_CHOICES = 256
MAX_CHOICE_BYTES = 1024


@dataclass(frozen=True)
class Limits:
    """What this worker can take."""

    model: ModelFacts
    context_tokens: int
    """Prompt and output together."""
    max_images: int
    """In one prompt; 0 where the model sees none."""

    @property
    def images(self) -> ImageGeometry | None:
        """How images are cut; None where none are taken."""
        return self.model.images if self.max_images else None

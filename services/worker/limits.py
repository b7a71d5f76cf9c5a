"""What one worker can take."""

from dataclasses import dataclass

from services.worker.model import ImageGeometry, ModelFacts

MAX_SALT_BYTES = 64
MAX_TRACE_KEY_BYTES = 64
MAX_ID_LENGTH = 128


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

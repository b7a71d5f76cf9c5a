"""What a simulated device is like: how long its steps take and how much it holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class SimCosts:
    """How long one step takes. All sequences of a step advance together."""

    step_s: float
    """A step whatever is in it: weights are read once."""
    per_sequence_s: float
    """For each sequence in it."""
    prefill_tokens_per_s: float
    """Prompt tokens read, over all sequences."""
    image_s: float
    """For each image that the encoder has to see."""

    def step_duration_s(self, sequences: int, prefill_tokens: int, images: int) -> float:
        """Seconds of one step."""
        return (
            self.step_s
            + self.per_sequence_s * sequences
            + prefill_tokens / self.prefill_tokens_per_s
            + self.image_s * images
        )


@dataclass(frozen=True)
class SimLimits:
    """How much fits."""

    sequences: int
    """In one step (max_num_seqs)."""
    batched_tokens: int
    """In one step (max_num_batched_tokens), prefill and decode together."""
    block_tokens: int
    """In one KV block (block_size)."""
    blocks: int
    """Of KV. At least one context's worth, so that a sequence alone always fits."""
    prefix_caching: bool = True


@dataclass(frozen=True)
class SimProfile:
    """A device that can be chosen by name."""

    costs: SimCosts
    kv_tokens: int


PROFILES: Mapping[str, SimProfile] = MappingProxyType(
    {
        # A 9B model in bf16 on two RTX 4090: 18 GB of weights read at 2 x 1 TB/s, plus launches and two all-reduces
        # a layer; 40 KiB of KV a token in the 2 x 11 GB that are left.
        "rtx4090x2": SimProfile(SimCosts(0.0129, 0.000_076, 10_000.0, 0.25), kv_tokens=524_288),
        # Nothing of the model's shows: for what stands in front of it.
        "fast": SimProfile(SimCosts(0.001, 0.0, 1_000_000.0, 0.001), kv_tokens=524_288),
        # As fast as the event loop goes: for tests.
        "instant": SimProfile(SimCosts(0.0, 0.0, float("inf"), 0.0), kv_tokens=524_288),
    }
)

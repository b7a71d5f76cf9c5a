"""Settings of the simulator: a profile by name, and each number of it by its own."""

from typing import Literal

from pydantic import Field

from services.runtime.settings import ServiceSettings
from services.worker.sim_faults import SimFaults


class SimSettings(ServiceSettings):
    """What the simulator simulates. None: as the profile has it. max_num_seqs and the like are the engine's own."""

    sim_profile: Literal["rtx4090x2", "fast", "instant"] = "rtx4090x2"
    """`rtx4090x2`: a 9B model in bf16 on two RTX 4090 (12.9 ms + 0.076 ms for each sequence a step, 10,000 prompt
    tokens/s, 0.25 s an image). `fast`: 1 ms a step. `instant`: as fast as the event loop goes."""
    sim_step_ms: float | None = Field(None, ge=0)
    """A step, in which each running generation gets one token. 0: as fast as the event loop goes."""
    sim_step_per_sequence_ms: float | None = Field(None, ge=0)
    """What each running generation adds to a step."""
    sim_prefill_tokens_per_s: float | None = Field(None, gt=0)
    """Prompt tokens read in a second, over all generations."""
    sim_image_ms: float | None = Field(None, ge=0)
    """What each image that is not in the encoder's cache adds to a step."""
    sim_kv_tokens: int | None = Field(None, ge=1)
    """Tokens whose KV fits; at least max_model_len."""
    sim_output_tokens: int = Field(64, ge=1)
    """Position at which a generation emits an end token, unless min_tokens or ignore_eos forbid it."""
    sim_synchronous: bool = True
    """true: all running generations advance in one step, as on a device. false: each by itself, at the same pace, so
    that their tokens come spread over time."""
    sim_fault: SimFaults = SimFaults()
    """Faults for tests of what stands in front, such as `{"die_after_tokens": 1000}`; see sim_faults."""

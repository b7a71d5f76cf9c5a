"""What this worker says of itself."""

from dataclasses import dataclass

from services.worker.engine import Load
from services.worker.limits import Limits


@dataclass(frozen=True)
class Status:
    """GetStatusResponse, before it is protobuf."""

    name: str
    model: str
    engine: str
    state: str
    limits: Limits
    max_running: int
    load: Load
    feature_bytes: int
    serving_s: float
    """Since it last began to; 0 while it does not."""
    engine_restart_count: int
    """Times that the engine ended by itself and was brought back."""

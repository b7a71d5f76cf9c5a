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
    """0 before it serves."""

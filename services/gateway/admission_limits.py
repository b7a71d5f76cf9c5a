"""What one gateway takes in; the settings of the same names say more."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AdmissionLimits:
    """The bounds of one gateway's admission."""

    max_running: int = 256
    """Generations at once."""
    max_waiting: int = 1024
    """Generations that wait, or are being read, beyond those."""
    max_held_bytes: int = 512 * 1024 * 1024
    """Of the messages of all calls under way."""
    max_held_tokens: int = 0
    """Of prompts and answers of all generations, running and waiting; 0: no limit."""
    queue_timeout_s: float = 60.0
    """Longest wait for a place."""
    ttft_objective_s: float = 0.0
    """Refuse at once who is foretold to wait longer for a place; 0: only as deadlines and queue_timeout_s say."""
    priority_step_s: float = 0.5
    """What one level of priority is worth in seconds of waiting; see fair_queue.py."""
    default_output_tokens: int = 1024
    """What an answer without max_tokens counts as until its end."""

    @property
    def seats(self) -> int:
        """Generations in all."""
        return self.max_running + self.max_waiting

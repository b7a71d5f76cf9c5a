"""Settings of the gateway."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from services.gateway.admission_limits import AdmissionLimits
from services.gateway.retention import RetentionLimits
from services.gateway.sessions.settings import SessionSettings
from services.runtime.loopback import is_loopback
from services.runtime.settings import ServiceSettings


def _loopback(address: str) -> str:
    if address and not is_loopback(address):
        raise ValueError(f"{address!r} is neither on loopback nor unix:/path: it asks for no key")
    return address


class GatewaySettings(ServiceSettings):
    """Settings of one gateway process."""

    model_config = SettingsConfigDict(env_prefix="HOTLINE_GATEWAY_")

    tokenizers: dict[str, str] = Field(min_length=1)
    """Tokenizer processes: configured name -> address."""
    workers: dict[str, str] = Field(min_length=1)
    """Worker processes: configured name -> address."""
    peers: dict[str, str] = Field(default_factory=dict)
    """The other gateways that share the store of sessions: configured name -> address; this one's own name may be among
    them. Calls about a generation that one of them has are passed on to it."""
    keys_file: Path | None = None
    """API keys (docs/keys.md); SIGHUP reads them again. None: there are none."""
    allow_anonymous: bool = False
    """Let in who sends no key, or `EMPTY`; without keys_file whatever was sent. Only where strangers cannot come."""
    admin_address: Annotated[str, AfterValidator(_loopback)] = ""
    """Where AdminService, and channelz, are answered: `unix:/path`, or `host:port` on loopback; no key is asked for.
    Empty: nowhere."""
    model_aliases: list[str] = Field([], max_length=64)
    """Other names of the default model (the first worker's); listed in /v1/models, replies carry the canonical one."""
    max_running: int = Field(256, ge=1)
    """Generations at once; the next ones wait."""
    max_waiting: int = Field(1024, ge=0)
    """Requests waiting for a place; the next one is refused with OVERLOADED. 0: nobody waits."""
    max_held_bytes: int = Field(512 * 1024 * 1024, ge=64 * 1024 * 1024)
    """Bytes of all requests under way, as they came; counted before one is decoded. The process holds some three times
    as much: as it came, as it was read, as it goes on."""
    max_held_tokens: int = Field(0, ge=0)
    """Tokens of all generations, running and waiting: prompt and max_tokens, guessed until rendered. 0: no limit."""
    queue_timeout_s: float = Field(60.0, gt=0, le=600)
    """Longest wait for a place; then OVERLOADED."""
    ttft_objective_s: float = Field(0.0, ge=0, le=600)
    """Refuse at once who will, by the measured rate, wait longer than this for a place. 0: no objective; who cannot
    meet its deadline or queue_timeout_s is refused in any case."""
    priority_step_s: float = Field(0.5, ge=0, le=60)
    """What one level of priority is worth in seconds of waiting: a request is overtaken only by more urgent ones that
    came at most difference x this later. 0: first come, first served."""
    default_output_tokens: int = Field(1024, ge=1)
    """What an answer without max_tokens counts as in limits of tokens, until its end; then as what it was."""
    render_timeout_s: float = Field(30.0, gt=0, le=300)
    """Longest wait for a tokenizer to render, and to push features."""
    text_rebuild_timeout_s: float = Field(10.0, ge=0, le=300)
    """Longest time that a running generation waits for a detokeniser after its own one went; then UNAVAILABLE."""
    move_timeout_s: float = Field(30.0, ge=0, le=600)
    """Longest time that a generation that has begun waits for a worker when its own one went: another one, or the same when it
    is back. 0: it fails at once, as those do in any case whose sampling cannot be carried over (docs/parameters.md)."""
    generation_timeout_s: float = Field(600.0, gt=0, le=3600)
    """Longest generation where the client set no deadline, and the most that a deadline may ask for."""
    max_keep_s: float = Field(600.0, ge=1, le=600)
    """The most that a request may ask for: a generation runs on for so long after its last reader went, and is kept for
    so long after its end."""
    max_replay_bytes: int = Field(1024 * 1024, ge=4096)
    """Of one generation that can be resumed: what its readers have had. The oldest goes first, and can then not be
    replayed."""
    max_unread_bytes: int = Field(1024 * 1024, ge=4096)
    """Of one generation: text and log-probabilities that no reader has had. Beyond it the generation is cancelled."""
    max_kept_bytes: int = Field(256 * 1024 * 1024, ge=0)
    """Of all generations that have ended and can still be replayed. The oldest goes first."""
    max_kept_count: int = Field(4096, ge=0)
    """Generations that have ended and can still be replayed. The oldest goes first."""
    sse_heartbeat_s: float = Field(15.0, ge=0, le=60)
    """A comment in an event stream of a generation that was accepted, after so long a silence; 0: none. It commits the
    status 200: what fails later is told in the stream."""
    sessions: SessionSettings = Field(default_factory=SessionSettings)
    """Conversations that the gateway keeps."""
    max_body_bytes: int = Field(32 * 1024 * 1024, ge=1024)
    """Largest REST body; the edge has the same limit and answers first."""
    parse_off_loop_bytes: int = Field(64 * 1024, ge=0)
    """REST bodies above this are parsed in a thread."""

    def admission(self) -> AdmissionLimits:
        """The bounds of admission."""
        return AdmissionLimits(
            **{field.name: getattr(self, field.name) for field in fields(AdmissionLimits)}
        )

    def retention(self) -> RetentionLimits:
        """The bounds of what is kept of generations."""
        return RetentionLimits(
            **{field.name: getattr(self, field.name) for field in fields(RetentionLimits)}
        )

    @model_validator(mode="after")
    def _refuse_to_serve_nobody(self) -> Self:
        if self.keys_file is None and not self.allow_anonymous:
            raise ValueError(
                "nobody could call: keys_file names the API keys (`hotline key add` makes one), or allow_anonymous: "
                "true lets everybody in who reaches this address"
            )
        return self

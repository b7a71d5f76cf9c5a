"""Settings of the tokenizer service."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from services.runtime.settings import ServiceSettings, existing_folder

MIB = 1024 * 1024


class Role(StrEnum):
    """What a tokenizer process does."""

    RENDER = "render"
    DETOKENISE = "detokenise"


class TokenizerSettings(ServiceSettings):
    """Settings of one tokenizer process, which serves one model's text and pixels."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_nested_delimiter="__", env_prefix="HOTLINE_TOKENIZER_"
    )

    model_path: Annotated[Path, AfterValidator(existing_folder)]
    """Folder with tokenizer, processor and chat template; local files only, no code of the model's is run."""
    model_name: str = Field(min_length=1, max_length=128)
    """The model's canonical name, as GetTokenizerStatus tells it."""
    roles: frozenset[Role] = Field(frozenset(Role), min_length=1)
    """`render` (Render, PushFeatures, Tokenize, DecodeTokens), `detokenise` (Detokenise), or both, which suits one
    small machine. Apart, image bursts share neither CPU threads nor memory with the tokens of running generations, and a
    process that only detokenises starts in a fraction of a second: it loads no image processor and no torch."""
    workers: dict[str, str] = Field(default_factory=dict)
    """Worker name -> address (`host:port` or `unix:/path`) for PushFeatures. No other address is ever dialled."""

    content_format: Literal["openai", "string"] = "openai"
    """`openai`: the template sees the parts in their order. `string`: as vLLM's format of that name,
    image placeholders move to the front of the message and parts are joined with newlines."""
    image_placeholder: str = Field("<|begin_of_image|><|image|><|end_of_image|>", min_length=1)
    """What stands for an image where a message's content is one string."""
    no_think_prefix: str | None = Field(None, max_length=1024)
    """None: the template's own `enable_thinking` switch. Else: put after the generation prompt where
    enable_thinking is false, such as `<think></think><answer>` for AutoGLM-Phone-9B, whose template has no switch."""
    think_tags: tuple[str, str] = ("<think>", "</think>")
    """How the model's output opens and closes its thought."""
    answer_tag: str = Field("<answer>", min_length=1)
    """How the model's output opens its answer; removed by split_reasoning."""
    end_tags: tuple[str, ...] = Field(("</answer>",), max_length=16)
    """Texts by which the model ends its answer, besides its end tokens; never shown."""
    history_end_tags: bool = True
    """Whether an end tag that ended an answer stays in the history of a session, as it does where a client sends its
    answers back with the tag. End tokens such as `<|user|>` never do: the template writes its own."""
    output_tags: tuple[str, ...] = (
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
        "<|begin_of_box|>",
        "<|end_of_box|>",
    )
    """The tags that become control ids in assistant turns; everywhere else, and all others, stay plain text."""

    tool_parser: str = Field("", max_length=64)
    """vLLM's parser of this model's tool calls, by its name there, such as `hermes` or `glm45`. Empty: requests with
    tools are refused. It takes 2 seconds more to start and 140 MiB, where nothing is rendered 5 seconds and
    520 MiB; vLLM has to be installed."""

    max_pixels: int | None = Field(None, ge=1)
    """Replaces the processor's pixel budget (vLLM's mm_processor_kwargs max_pixels; a frame counts twice).
    None: what the model's processor configuration says."""
    min_pixels: int | None = Field(None, ge=1)
    """Replaces the processor's least size; smaller images are scaled up to it. None: the model's own."""
    max_image_bytes: int = Field(20 * MIB, ge=1)
    """Largest encoded image, in bytes."""
    max_image_pixels: int = Field(32_000_000, ge=1)
    """Largest image that is decoded, in width x height, checked in its header. Decoding takes up to 13 bytes a pixel."""
    max_images: int = Field(10, ge=0, le=64)
    """Images in one prompt."""
    max_text_bytes: int = Field(MIB, ge=1)
    """Text of one prompt, in bytes of UTF-8, over all messages."""

    render_threads: int = Field(2, ge=1, le=64)
    """Threads that render; Detokenise has one of its own, so that image bursts never delay tokens."""
    max_running: int = Field(4, ge=1)
    """Renders at once; beyond the threads they wait inside the pool."""
    max_waiting: int = Field(128, ge=0)
    """Renders waiting for a place; the next one is refused with OVERLOADED."""

    feature_store_bytes: int = Field(512 * MIB, ge=MIB)
    """Feature tensors kept for PushFeatures; the least recently used go first."""
    feature_ttl_s: float = Field(300.0, gt=0)
    """How long a tensor is kept after it was last rendered or pushed."""
    push_timeout_s: float = Field(10.0, gt=0, le=600)
    """How long a worker may take to accept the tensors of one PushFeatures call."""

    max_open_handles: int = Field(4096, ge=1)
    """Texts open on one Detokenise stream; a further one is answered with an error for its handle."""
    max_queued_messages: int = Field(64, ge=1)
    """Messages of one Detokenise stream that are read ahead; then the stream's flow control holds the sender."""

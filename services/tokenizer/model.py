"""One loaded model: what renders its prompts, and how its output reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.tokenizer.content import ContentLayout
from services.tokenizer.continuation import Continuations
from services.tokenizer.continuation_proof import ContinuationProof
from services.tokenizer.conversation import ConversationLimits
from services.tokenizer.detokeniser import Detokeniser
from services.tokenizer.forced_calls import call_readers
from services.tokenizer.media import MediaLimits
from services.tokenizer.model_folder import ModelFolder, Vocabulary, load, load_vocabulary
from services.tokenizer.output_text import OutputFormat
from services.tokenizer.past_answer import PastAnswers
from services.tokenizer.pixels import PatchCutter
from services.tokenizer.plain_text import PlainText
from services.tokenizer.renderer import History, Renderer, TextEncoder, Thinking, Vision
from services.tokenizer.settings import Role, TokenizerSettings
from services.tokenizer.special_text import SpecialText
from services.tokenizer.template import ChatTemplate
from services.tokenizer.tool_calls import ReaderFactory
from services.tokenizer.vllm_tool_parser import VllmToolParser


@dataclass(frozen=True)
class Model:
    """One model's directions."""

    renderer: Renderer | None
    """None in a process without the role `render`."""
    output: OutputFormat
    plain: PlainText | None
    """None in a process without the role `render`."""


def load_model(settings: TokenizerSettings) -> Model:
    """Load the model's folder; takes seconds where it renders. Raises ValueError or OSError where it cannot be used."""
    if Role.RENDER not in settings.roles:
        return Model(None, _output(load_vocabulary(settings.model_path), settings), None)
    folder = load(settings.model_path)
    encoder = _encoder(folder, settings)
    plain = PlainText(encoder, _decode(folder), folder.vocabulary_size, _prefix(folder))
    return Model(_renderer(folder, settings, encoder), _output(folder, settings), plain)


def _encoder(folder: ModelFolder, settings: TokenizerSettings) -> TextEncoder:
    def encode(texts: list[str]) -> list[list[int]]:
        made = folder.backend.encode_batch(texts, add_special_tokens=False)
        return [encoding.ids for encoding in made]

    return TextEncoder(encode, SpecialText(folder.control, settings.output_tags))


def _prefix(folder: ModelFolder) -> Sequence[int]:
    """What the tokenizer puts before every text, such as a beginning-of-text token."""
    alone, added = (folder.backend.encode("a", add_special_tokens=add).ids for add in (False, True))
    starts = range(len(added) - len(alone) + 1)
    at = next((start for start in starts if added[start : start + len(alone)] == alone), 0)
    prefix: list[int] = added[:at]
    return prefix


def _decode(folder: ModelFolder) -> Callable[[Sequence[int], bool], str]:
    def decode(token_ids: Sequence[int], skip_special_tokens: bool) -> str:
        # As a batch of one: tokenizers' `decode` holds the interpreter's lock to its end, `decode_batch` does not.
        texts: list[str] = folder.backend.decode_batch(
            [token_ids], skip_special_tokens=skip_special_tokens
        )
        return texts[0]

    return decode


def _renderer(folder: ModelFolder, settings: TokenizerSettings, encoder: TextEncoder) -> Renderer:
    template = ChatTemplate(folder.chat_template)
    layout = ContentLayout(template, settings.content_format, settings.image_placeholder)
    thinking = Thinking(settings.think_tags, settings.no_think_prefix)
    vision = _vision(folder, settings)
    continuations = Continuations(template, _borders(folder))
    proof = ContinuationProof(
        template,
        layout,
        continuations,
        thinking.switch,
        lambda text: encoder.encode([text])[0],
        vision is not None,
        settings.think_tags,
    )
    return Renderer(
        template=template,
        layout=layout,
        encoder=encoder,
        thinking=thinking,
        vision=vision,
        history=History(_past_answers(folder, settings), continuations, proof),
        limits=(
            ConversationLimits(
                settings.max_images,
                settings.max_text_bytes,
                template.has_tools,
                parses_calls=bool(settings.tool_parser),
            ),
            MediaLimits(settings.max_image_bytes, settings.max_image_pixels),
        ),
    )


def _borders(folder: ModelFolder) -> list[str]:
    """Control tokens before which a prompt may be cut: they take nothing from what stands before them."""
    added = folder.backend.get_added_tokens_decoder()
    return [
        spelling
        for spelling, token_id in folder.control.items()
        if not added[token_id].lstrip and not added[token_id].single_word
    ]


def _past_answers(folder: ModelFolder, settings: TokenizerSettings) -> PastAnswers:
    shown_tags = (*settings.think_tags, settings.answer_tag, *settings.end_tags)
    tags = {*shown_tags, *settings.output_tags}
    tag_ids = {folder.control[tag] for tag in tags if tag in folder.control}
    shown_ids = {folder.control[tag] for tag in shown_tags if tag in folder.control}
    hidden_ids = folder.special_ids - tag_ids
    return PastAnswers(
        Detokeniser(folder.backend, hidden_ids),
        settings.end_tags,
        settings.history_end_tags,
        end_ids=folder.end_ids,
        hidden_ids=hidden_ids,
        unseen_ids=folder.special_ids & (tag_ids - shown_ids),
        vocabulary_size=folder.vocabulary_size,
    )


def _vision(folder: ModelFolder, settings: TokenizerSettings) -> Vision | None:
    if folder.image_processor is None or folder.image_token_id is None:
        return None
    cutter = PatchCutter(folder.image_processor, settings.min_pixels, settings.max_pixels)
    return Vision(cutter, folder.image_token_id)


def _output(folder: Vocabulary, settings: TokenizerSettings) -> OutputFormat:
    tags = (*settings.think_tags, settings.answer_tag, *settings.end_tags)
    seen = {folder.control[tag] for tag in tags if tag in folder.control}
    return OutputFormat(
        # Tags are cut out as text, so they must be seen also where a vocabulary calls them special.
        detokeniser=Detokeniser(folder.backend, folder.special_ids - seen),
        vocabulary_size=folder.vocabulary_size,
        end_ids=folder.end_ids,
        end_tags=settings.end_tags,
        think_tags=settings.think_tags,
        answer_tag=settings.answer_tag,
        open_calls=_call_readers(folder, settings),
    )


def _call_readers(folder: Vocabulary, settings: TokenizerSettings) -> ReaderFactory | None:
    if not settings.tool_parser or Role.DETOKENISE not in settings.roles:
        return None
    return call_readers(VllmToolParser(settings.tool_parser, folder.backend).open)

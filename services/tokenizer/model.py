"""One loaded model: what renders its prompts, and how its output reads."""

from dataclasses import dataclass

from services.tokenizer.content import ContentLayout
from services.tokenizer.conversation import ConversationLimits
from services.tokenizer.detokeniser import Detokeniser
from services.tokenizer.media import MediaLimits
from services.tokenizer.model_folder import ModelFolder, load
from services.tokenizer.output_text import OutputFormat
from services.tokenizer.pixels import PatchCutter
from services.tokenizer.renderer import Renderer, TextEncoder, Thinking, Vision
from services.tokenizer.settings import TokenizerSettings
from services.tokenizer.special_text import SpecialText
from services.tokenizer.template import ChatTemplate


@dataclass(frozen=True)
class Model:
    """Both directions of one model."""

    renderer: Renderer
    output: OutputFormat


def load_model(settings: TokenizerSettings) -> Model:
    """Load the model's folder; takes seconds. Raises ValueError or OSError where it cannot be used."""
    folder = load(settings.model_path)
    return Model(_renderer(folder, settings), _output(folder, settings))


def _renderer(folder: ModelFolder, settings: TokenizerSettings) -> Renderer:
    template = ChatTemplate(folder.chat_template)

    def encode(texts: list[str]) -> list[list[int]]:
        made = folder.backend.encode_batch(texts, add_special_tokens=False)
        return [encoding.ids for encoding in made]

    return Renderer(
        template=template,
        layout=ContentLayout(template, settings.content_format, settings.image_placeholder),
        encoder=TextEncoder(encode, SpecialText(folder.control, settings.output_tags)),
        thinking=Thinking(settings.think_tags, settings.no_think_prefix),
        vision=_vision(folder, settings),
        limits=(
            ConversationLimits(settings.max_images, settings.max_text_bytes, template.has_tools),
            MediaLimits(settings.max_image_bytes, settings.max_image_pixels),
        ),
    )


def _vision(folder: ModelFolder, settings: TokenizerSettings) -> Vision | None:
    if folder.image_processor is None or folder.image_token_id is None:
        return None
    cutter = PatchCutter(folder.image_processor, settings.min_pixels, settings.max_pixels)
    return Vision(cutter, folder.image_token_id)


def _output(folder: ModelFolder, settings: TokenizerSettings) -> OutputFormat:
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
    )

"""Every parameter of the OpenAI surface: the one table that bodies are parsed by, checked by and documented from.

What is not in it is accepted and ignored, except for what a body is about (`model`, `messages`, `prompt`).
"""

from collections.abc import Sequence

from services.gateway.constraints import (
    Choices,
    ConstraintText,
    ResponseFormat,
    Schema,
    StructuredOutputs,
)
from services.gateway.parameter import Parameter, Route
from services.gateway.parameter_kinds import (
    Biases,
    Boolean,
    Number,
    Objects,
    Stops,
    StreamOptions,
    Text,
    TokenIds,
)
from services.gateway.tools import ToolChoices, Tools
from services.runtime.sampling_ranges import PRIORITIES, SAMPLING_RANGES, Range

KEEP_SECONDS = Range(1, 600)
"""As DisconnectPolicy has it."""
SESSION_ID_BYTES = 32
MAX_TEXT_LOGPROBS = 5
"""OpenAI's, for text completions."""
MAX_VARIABLES_BYTES = 16 * 1024
MAX_USER_BYTES = 512


def _number(name: str) -> Number:
    return Number(SAMPLING_RANGES[name])


def _integer(name: str) -> Number:
    return Number(SAMPLING_RANGES[name], is_integer=True)


_CHAT, _COMPLETIONS = (Route.CHAT,), (Route.COMPLETIONS,)
_MODELS = "what the model's generation configuration says"
_FORM = "sampling.structured_output"
_FREE = "free text"

# fmt: off
TABLE: Sequence[Parameter] = (
    Parameter("temperature", _number("temperature"), "sampling.temperature", f"{_MODELS}; greedy for the default model",
              "Randomness; 0 is greedy."),
    Parameter("top_p", _number("top_p"), "sampling.top_p", _MODELS,
              "Only the likeliest tokens that make up this much probability."),
    Parameter("top_k", _integer("top_k"), "sampling.top_k", _MODELS,
              "Only so many likeliest tokens, up to the vocabulary's size; 0 and -1 mean no limit.", is_nestable=True),
    Parameter("min_p", _number("min_p"), "sampling.min_p", _MODELS,
              "Only tokens at least so likely, relative to the likeliest.", is_nestable=True),
    Parameter("presence_penalty", _number("presence_penalty"), "sampling.presence_penalty", "0",
              "Makes tokens of the output so far less likely, once."),
    Parameter("frequency_penalty", _number("frequency_penalty"), "sampling.frequency_penalty", "0",
              "Makes tokens of the output so far less likely, for each time."),
    Parameter("repetition_penalty", _number("repetition_penalty"), "sampling.repetition_penalty", _MODELS,
              "Above 1 makes tokens of the prompt and of the output so far less likely.", is_nestable=True),
    Parameter("seed", _integer("seed"), "sampling.seed", "random",
              "The same seed, prompt and parameters give the same tokens on the same engine."),
    Parameter("stop", Stops(), "sampling.stop", "none",
              "The first of these that appears ends the generation and is not shown."),
    Parameter("stop_token_ids", TokenIds(), "sampling.stop_token_ids", "none",
              "Tokens that end the generation, besides the model's own.", is_nestable=True),
    Parameter("max_tokens", _integer("max_tokens"), "sampling.max_tokens",
              "the room left in the context; 16 for text completions, as OpenAI's",
              "Output tokens at most; larger than the room means the room."),
    Parameter("max_completion_tokens", _integer("max_tokens"), "sampling.max_tokens", "`max_tokens`",
              "The newer name of `max_tokens`, over which it wins.", _CHAT, replaces="max_tokens"),
    Parameter("min_tokens", _integer("min_tokens"), "sampling.min_tokens", "0",
              "Output tokens before an end may be chosen; at most `max_tokens`.", is_nestable=True),
    Parameter("n", _integer("n"), "sampling.n", "1", "How many independent outputs, for each prompt."),
    Parameter("best_of", _integer("n"), "", "`n`", "Only the value of `n`: outputs are not ranked.", _COMPLETIONS),
    Parameter("logprobs", Boolean(), "sampling.logprobs", "false",
              "Log-probabilities of the output's tokens.", _CHAT),
    Parameter("top_logprobs", _integer("logprobs"), "sampling.logprobs", "0",
              "With `logprobs`: those of so many likeliest tokens besides, at each place.", _CHAT),
    Parameter("logprobs", Number(Range(0, MAX_TEXT_LOGPROBS), is_integer=True), "sampling.logprobs", "none",
              "Log-probabilities of the output's tokens, and of so many likeliest ones at each place.", _COMPLETIONS),
    Parameter("logit_bias", Biases(), "sampling.logit_bias", "none", "Added to a token's logit before sampling."),
    Parameter("response_format", ResponseFormat(), _FORM, _FREE,
              "A form that the output must have; at most one constraint among this and the following five."),
    Parameter("structured_outputs", StructuredOutputs(), _FORM, _FREE,
              "A form that the output must have, by vLLM's newer name.", is_nestable=True),
    Parameter("guided_json", Schema(), _FORM, _FREE, "JSON of this form.", is_nestable=True),
    Parameter("guided_regex", ConstraintText("regex"), _FORM, _FREE,
              "A regular expression that the whole output matches.", is_nestable=True),
    Parameter("guided_choice", Choices(), _FORM, _FREE, "One of these, verbatim.", is_nestable=True),
    Parameter("guided_grammar", ConstraintText("grammar"), _FORM, _FREE,
              "A grammar in EBNF, whose first rule is `root`.", is_nestable=True),
    Parameter("ignore_eos", Boolean(), "sampling.ignore_eos", "false",
              "true: the model's end tokens do not end the generation.", is_nestable=True),
    Parameter("stream", Boolean(), "answer", "false", "true: server-sent events; false: one JSON object."),
    Parameter("stream_options", StreamOptions(), "answer", "no usage", "With `stream` only: usage in one last chunk."),
    Parameter("echo", Boolean(), "", "false", "true is refused: the prompt is not repeated.", _COMPLETIONS),
    Parameter("suffix", Text(MAX_USER_BYTES), "", "none", "Refused unless empty: no text is filled in before another.",
              _COMPLETIONS),
    Parameter("add_special_tokens", Boolean(), "prompt.add_special_tokens", "true",
              "With a prompt that is text: puts before it what the tokenizer puts before every text.", _COMPLETIONS),
    Parameter("priority", Number(PRIORITIES, is_integer=True), "priority", "0",
              "-100 goes first, 100 last.", is_nestable=True),
    Parameter("x_keep_seconds", Number(KEEP_SECONDS, is_integer=True), "disconnect.keep_s", "it ends with its reader",
              "Where the connection ends first, the generation runs on for so long and can be resumed. Also as the header "
              "`X-Keep-Seconds`.", is_nestable=True),
    Parameter("session_id", Text(SESSION_ID_BYTES), "session_id", "no session",
              "A session of the caller's: `messages` are what is new in it. Also as the header `X-Session-Id`.",
              _CHAT, is_nestable=True),
    Parameter("session_wait", Boolean(), "session_busy", "false",
              "While a turn of the session runs: true waits for its end within the deadline, false answers 409.",
              _CHAT, is_nestable=True),
    Parameter("user", Text(MAX_USER_BYTES), "", "none",
              "Accepted and not used: whose a generation is follows from the API key."),
    Parameter("enable_thinking", Boolean(), "render.enable_thinking", "the model's own habit",
              "false: the model answers at once. Also in `chat_template_kwargs`.", _CHAT, is_nestable=True),
    Parameter("return_reasoning", Boolean(), "render.split_reasoning", "false",
              "true: the thought goes to `reasoning` and `reasoning_content`. Also in `chat_template_kwargs`.",
              _CHAT, is_nestable=True),
    Parameter("chat_template_kwargs", Objects(MAX_VARIABLES_BYTES), "render.template_variables", "none",
              "Further variables of the model's chat template; those it does not use are ignored.",
              _CHAT, is_nestable=True),
    Parameter("tools", Tools(), "render.tools", "none",
              "Functions that the model may call; refused where its template has no tools.", _CHAT),
    Parameter("tool_choice", ToolChoices(), "render.tool_choice", "`auto` where there are tools",
              "`none`: the model sees no tools; `required`, or a function: it has to call one.", _CHAT),
    Parameter("parallel_tool_calls", Boolean(), "", "true",
              "false: at most one call where `tool_choice` is `required`; otherwise the model decides.", _CHAT),
)
# fmt: on


def of_route(route: Route) -> list[Parameter]:
    """The parameters that a route takes, in the table's order."""
    return [parameter for parameter in TABLE if route in parameter.routes]

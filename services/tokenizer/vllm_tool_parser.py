"""vLLM's own tool parsers as readers of calls; the one module of this service that imports vllm.

Importing them takes some 5 seconds and 520 MiB, or 2 seconds and 140 MiB where transformers and torch are loaded
already; so it is done at warm-up, and only where a parser is configured. No engine is loaded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from services.runtime.logs import get_logger
from services.tokenizer.tool_calls import CallPiece, CallReader, CallsUnreadableError, Cut, ToolUse

_log = get_logger()
_PROBE = {"type": "function", "function": {"name": "probe", "parameters": {"type": "object"}}}


class VllmToolParser:
    """One of vLLM's parsers, for texts of one model. Takes its time: see the module.

    Args:
        name: as `vllm serve --tool-call-parser` knows it.
        backend: a tokenizers.Tokenizer.

    Raises:
        ValueError: there is no parser of this name, or none for this vocabulary.
    """

    def __init__(self, name: str, backend: Any) -> None:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.tool_parsers import ToolParserManager

        self._request_kind = ChatCompletionRequest
        try:
            self._kind = ToolParserManager.get_tool_parser(name)
        except KeyError:
            known = ", ".join(ToolParserManager.list_registered())
            raise ValueError(f"tool_parser {name!r}: must be one of {known}") from None
        self._tokenizer = _tokenizer(backend)
        try:
            self.open(ToolUse([_PROBE]))
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"tool_parser {name!r} does not fit this model: {error}") from error

    def open(self, use: ToolUse) -> CallReader:
        """A reader for one text. Raises ValueError where vLLM does not take these tools; the gateway has checked them."""
        request = self._request_kind(
            messages=[{"role": "user", "content": ""}],
            tools=[_known_part(tool["function"]) for tool in use.tools],
            tool_choice="auto",
        )
        parser = self._kind(self._tokenizer, request.tools)
        if hasattr(parser, "skip_reasoning_parsing"):
            parser.skip_reasoning_parsing = True  # thoughts are cut off before, or wanted as text
        return _Reader(parser, request)


class _Reader:
    """See CallReader. Fed id by id, as vLLM's server does, since some parsers depend on how a text is cut."""

    def __init__(self, parser: Any, request: Any) -> None:
        self._parser, self._request = parser, request
        self._text = ""
        self._token_ids: list[int] = []
        self._named: set[int] = set()

    def push(self, text: str, token_ids: Sequence[int]) -> Cut:
        """See CallReader."""
        before, ids_before = self._text, self._token_ids
        self._text, self._token_ids = before + text, [*ids_before, *token_ids]
        return self._cut(
            self._parser.extract_tool_calls_streaming,
            before,
            self._text,
            text,
            ids_before,
            self._token_ids,
            list(token_ids),
            self._request,
        )

    def end(self) -> Cut:
        """See CallReader."""
        finish = getattr(self._parser, "finish_streaming", None)
        if finish is not None:
            return self._cut(finish)
        return Cut(calls=self._unstreamed())

    def _cut(self, read: Any, *arguments: Any) -> Cut:
        try:
            delta = read(*arguments)
            return Cut() if delta is None else self._of(delta)
        # A parser is a program for what its model should write; given something else, it fails in its own ways.
        except (
            ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
        ) as error:  # fmt: skip
            _log.warning("tool parser failed", cause=type(error).__name__)
            raise CallsUnreadableError from error

    def _of(self, delta: Any) -> Cut:
        calls = []
        for call in delta.tool_calls or ():
            function = call.function
            name = (function.name if function else None) or ""
            piece = CallPiece(
                index=call.index,
                id=(call.id or "") if name else "",
                name=name,
                arguments=(function.arguments if function else None) or "",
            )
            if name:
                self._named.add(call.index)
            if piece.index in self._named and (name or piece.arguments):
                calls.append(piece)
        return Cut(delta.content or "", calls)

    def _unstreamed(self) -> Sequence[CallPiece]:
        """Arguments that the parser has read and not told, of its last call."""
        index = len(self._parser.prev_tool_call_arr) - 1
        if index not in self._named:
            return ()
        rest = self._parser.get_remaining_unstreamed_args()
        return (CallPiece(index, arguments=rest),) if rest else ()


def _known_part(function: Mapping[str, Any]) -> dict[str, Any]:
    """What parsers look at; vLLM would check what else clients send, and refuse some of it."""
    known = ("name", "description", "parameters")
    return {"type": "function", "function": {n: function[n] for n in known if n in function}}


def _tokenizer(backend: Any) -> Any:
    from transformers import PreTrainedTokenizerFast

    class Tokenizer(PreTrainedTokenizerFast):  # type: ignore[misc]
        """Makes its vocabulary once: parsers ask for all of it, for every text."""

        def get_vocab(self) -> dict[str, int]:
            return vocabulary

    vocabulary: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    # A copy: transformers puts its own padding and truncation into it.
    copy = type(backend).from_str(backend.to_str())
    return Tokenizer(tokenizer_object=copy)

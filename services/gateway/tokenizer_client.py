"""The gateway's side of TokenizerService; protobuf stops here."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from grpc import aio
from hotline.v1 import tokenizer_pb2, tokenizer_pb2_grpc

from services.gateway.id_copy import copy_ids
from services.gateway.interfaces import (
    Rendered,
    TextOptions,
    TextSink,
    TextStream,
)
from services.gateway.render_wire import render_request
from services.gateway.renderable import Renderable
from services.gateway.text_link import TextLink
from services.gateway.upstream import Upstream
from services.runtime.errors import UnavailableError
from services.runtime.logs import request_metadata
from services.runtime.status import from_rpc_error

Answer = TypeVar("Answer")
STATUS_TIMEOUT_S = 5.0
_RENDER = tokenizer_pb2.TOKENIZER_ROLE_RENDER
_DETOKENISE = tokenizer_pb2.TOKENIZER_ROLE_DETOKENISE


class TokenizerClient:
    """One tokenizer process; see interfaces.Tokenizer and interfaces.Detokeniser."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream, self.name = upstream, upstream.name
        self._stub: tokenizer_pb2_grpc.TokenizerServiceAsyncStub = (
            tokenizer_pb2_grpc.TokenizerServiceStub(upstream.channel)
        )
        self.link = TextLink(upstream.name, upstream.channel)
        self.status = tokenizer_pb2.GetTokenizerStatusResponse()
        self._render_limits: set[asyncio.Timeout] = set()
        upstream.frozen_listeners += [self.link.abandon, self._abandon_renders]

    @property
    def rendering_count(self) -> int:
        """Renders under way here from this gateway."""
        return len(self._render_limits)

    async def refresh(self) -> None:
        """Learn what the process does; called when it begins to serve."""
        request = tokenizer_pb2.GetTokenizerStatusRequest()
        self.status = await self._stub.GetTokenizerStatus(request, timeout=STATUS_TIMEOUT_S)

    def renders(self, model: str) -> bool:
        """Whether it serves and renders this model (a canonical name)."""
        return self._serves(model, _RENDER)

    def detokenises(self, model: str) -> bool:
        """Whether it serves and detokenises this model (a canonical name)."""
        return self._serves(model, _DETOKENISE)

    def _serves(self, model: str, role: tokenizer_pb2.TokenizerRole.ValueType) -> bool:
        status = self.status
        return self.upstream.serving and role in status.roles and status.model == model

    async def render(self, request: Renderable, timeout_s: float) -> Rendered:
        """See interfaces.Tokenizer."""
        response = await self._answer(
            self._stub.Render(
                render_request(request),
                timeout=timeout_s,
                metadata=request_metadata(),
            )
        )
        features = response.features
        return Rendered(
            response.token_ids,
            features,
            [placement.feature_digest for placement in features],
            response.thinking_closed,
            sum(placement.length for placement in features),
            response.answer_token_count,
            response.whole_needed,
            response.answer_prefix,
        )

    async def tokenize(
        self,
        text: str,
        timeout_s: float,
        parse_special_tokens: bool = False,
        add_special_tokens: bool = False,
    ) -> Sequence[int]:
        """See interfaces.Tokenizer."""
        request = tokenizer_pb2.TokenizeRequest(
            text=text,
            parse_special_tokens=parse_special_tokens,
            add_special_tokens=add_special_tokens,
        )
        call = self._stub.Tokenize(request, timeout=timeout_s, metadata=request_metadata())
        return (await self._answer(call)).token_ids

    async def decode_tokens(
        self, token_ids: Sequence[int], skip_special_tokens: bool, timeout_s: float
    ) -> str:
        """See interfaces.Tokenizer."""
        request = tokenizer_pb2.DecodeTokensRequest(skip_special_tokens=skip_special_tokens)
        await copy_ids(token_ids, request.token_ids)
        call = self._stub.DecodeTokens(request, timeout=timeout_s, metadata=request_metadata())
        return (await self._answer(call)).text

    async def _answer(self, call: Awaitable[Answer]) -> Answer:
        limit = asyncio.timeout(None)  # set by _abandon_renders
        self._render_limits.add(limit)
        try:
            async with limit:
                return await call
        except aio.AioRpcError as error:
            raise from_rpc_error(error, self.name) from error
        except TimeoutError:
            raise UnavailableError(f"{self.name} does not answer.", retry_delay_s=1.0) from None
        finally:
            self._render_limits.discard(limit)

    def _abandon_renders(self) -> None:
        """The process is frozen: its answers may never come."""
        now_s = asyncio.get_running_loop().time()
        for limit in self._render_limits:
            limit.reschedule(now_s)

    async def push_features(self, digests: Sequence[bytes], worker: str, timeout_s: float) -> None:
        """See interfaces.Tokenizer."""
        try:
            await self._stub.PushFeatures(
                tokenizer_pb2.PushFeaturesRequest(feature_digests=digests, worker=worker),
                timeout=timeout_s,
                metadata=request_metadata(),
            )
        except aio.AioRpcError as error:
            raise from_rpc_error(error, self.name) from error

    def open_text(self, options: TextOptions, choice_index: int, sink: TextSink) -> TextStream:
        """See interfaces.Tokenizer."""
        return self.link.open(options, choice_index, sink)

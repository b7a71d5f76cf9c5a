"""The gateway's side of TokenizerService; protobuf stops here."""

from collections.abc import Sequence

from grpc import aio
from hotline.v1 import tokenizer_pb2, tokenizer_pb2_grpc

from services.gateway.interfaces import (
    GenerationRequest,
    Rendered,
    TextOptions,
    TextSink,
    TextStream,
)
from services.gateway.text_link import TextLink
from services.gateway.upstream import Upstream
from services.runtime.logs import request_metadata
from services.runtime.status import from_rpc_error


class TokenizerClient:
    """One tokenizer process; see interfaces.Tokenizer."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream, self.name = upstream, upstream.name
        self._stub: tokenizer_pb2_grpc.TokenizerServiceAsyncStub = (
            tokenizer_pb2_grpc.TokenizerServiceStub(upstream.channel)
        )
        self.link = TextLink(upstream.name, upstream.channel)
        self.rendering_count = 0

    @property
    def load(self) -> int:
        """Renders and texts under way here from this gateway."""
        return self.rendering_count + self.link.open_count

    async def render(self, request: GenerationRequest, timeout_s: float) -> Rendered:
        """See interfaces.Tokenizer."""
        self.rendering_count += 1
        try:
            response = await self._stub.Render(
                tokenizer_pb2.RenderRequest(
                    messages=request.messages, options=request.render_options
                ),
                timeout=timeout_s,
                metadata=request_metadata(),
            )
        except aio.AioRpcError as error:
            raise from_rpc_error(error, self.name) from error
        finally:
            self.rendering_count -= 1
        digests = [placement.feature_digest for placement in response.features]
        return Rendered(response.token_ids, response.features, digests, response.thinking_closed)

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

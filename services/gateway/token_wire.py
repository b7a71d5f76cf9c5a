"""CountTokens, Tokenize and Detokenise: hotline.v1 <-> the gateway's own types."""

from collections.abc import Sequence

from hotline.v1 import inference_pb2

from services.gateway.id_copy import copy_ids
from services.gateway.interfaces import Rendered
from services.gateway.renderable import Conversation
from services.gateway.wire import check_conversation


def conversation(request: inference_pb2.CountTokensRequest) -> Conversation:
    """What is to be counted. Raises InvalidArgumentError."""
    check_conversation(request)
    return Conversation(request.messages, request.render)


def count(rendered: Rendered, context_tokens: int) -> inference_pb2.CountTokensResponse:
    """How much of the context a prompt takes."""
    return inference_pb2.CountTokensResponse(
        prompt_tokens=len(rendered.token_ids),
        image_tokens=rendered.image_tokens,
        context_tokens=context_tokens,
    )


async def ids(token_ids: Sequence[int], context_tokens: int) -> inference_pb2.TokenizeTextResponse:
    """The ids of a text."""
    response = inference_pb2.TokenizeTextResponse(context_tokens=context_tokens)
    await copy_ids(token_ids, response.token_ids)
    return response

"""What is to be rendered, for a tokenizer."""

from hotline.v1 import tokenizer_pb2

from services.gateway.renderable import Answer, Piece, Renderable


def render_request(request: Renderable) -> tokenizer_pb2.RenderRequest:
    """A conversation, or a piece of a session's prompt."""
    message = tokenizer_pb2.RenderRequest(messages=request.messages, options=request.render_options)
    if isinstance(request, Piece):
        message.may_be_empty = request.may_be_empty
        if request.after is not None:
            message.continuation.CopyFrom(_continuation(request.after))
        message.past_answers.extend(
            tokenizer_pb2.PastAnswer(
                message_index=index, answer=_continuation(answer), prefix=answer.prefix
            )
            for index, answer in request.answers
        )
    return message


def _continuation(answer: Answer) -> tokenizer_pb2.Continuation:
    return tokenizer_pb2.Continuation(
        answer_token_ids=answer.token_ids, stop_match=answer.stop_match
    )

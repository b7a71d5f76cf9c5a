"""A client of Hotline's gRPC contract for networks that drop: it resumes streams and repeats what is safe to repeat.

    async with AsyncClient("127.0.0.1:8000") as client, client.session() as session:
        answer = await session.turn("Tap the red button", image=screenshot)

`Client` is the same for code without asyncio.
"""

from hotline_client.answer import Answer
from hotline_client.async_client import AsyncClient, Options
from hotline_client.client import Client
from hotline_client.errors import HotlineError
from hotline_client.messages import assistant, system, user
from hotline_client.policy import NetworkPolicy

__all__ = [
    "Answer",
    "AsyncClient",
    "Client",
    "HotlineError",
    "NetworkPolicy",
    "Options",
    "assistant",
    "system",
    "user",
]

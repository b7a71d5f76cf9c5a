"""The gRPC services that every process has besides its own: health, reflection, channelz."""

from collections.abc import Sequence

from grpc import aio
from grpc_channelz.v1 import channelz, channelz_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from services.runtime.health import HealthServicer

_HEALTH_NAME = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_CHANNELZ_NAME = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"].full_name


def add_built_in(
    server: aio.Server, names: Sequence[str], health: HealthServicer, with_channelz: bool
) -> None:
    """Add them; reflection lists them, and `names`."""
    listed = [*names, _HEALTH_NAME, reflection.SERVICE_NAME]
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if with_channelz:
        channelz.add_channelz_servicer(server)
        listed.append(_CHANNELZ_NAME)
    reflection.enable_server_reflection(listed, server)

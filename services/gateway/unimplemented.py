"""Services of the contract that this version does not build: every RPC says so, with the reason UNIMPLEMENTED."""

from typing import Any

from grpc import aio
from hotline.v1 import admin_pb2_grpc, session_pb2_grpc

from services.gateway.admin_servicer import SystemStatus
from services.runtime.errors import UnimplementedError


def _refusing(base: type, service: str, **built: Any) -> Any:
    """An instance of a servicer base whose every RPC, but those built, raises UnimplementedError."""

    def refusal(method: str) -> Any:
        async def call(self: object, request: object, context: object) -> None:
            raise UnimplementedError(f"{service}.{method}")

        return call

    methods = {name: built.get(name) or refusal(name) for name in vars(base) if name[0].isupper()}
    return type(f"Later{base.__name__}", (base,), methods)()


def add_later_services(server: aio.Server, get_system_status: SystemStatus) -> list[str]:
    """Register them, and the one RPC of AdminService that is built; returns their full names."""
    session = _refusing(session_pb2_grpc.SessionServiceServicer, "SessionService")
    session_pb2_grpc.add_SessionServiceServicer_to_server(session, server)
    admin = _refusing(
        *(admin_pb2_grpc.AdminServiceServicer, "AdminService"), GetSystemStatus=get_system_status
    )
    admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
    return ["hotline.v1.SessionService", "hotline.v1.AdminService"]

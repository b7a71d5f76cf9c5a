"""Services of the contract that this version does not build: every RPC says so, with the reason UNIMPLEMENTED."""

from typing import Any

from services.runtime.errors import UnimplementedError


def refusing(base: type, service: str, **built: Any) -> Any:
    """An instance of a servicer base whose every RPC, but those built, raises UnimplementedError."""

    def refusal(method: str) -> Any:
        async def call(self: object, request: object, context: object) -> None:
            raise UnimplementedError(f"{service}.{method}")

        return call

    methods = {name: built.get(name) or refusal(name) for name in vars(base) if name[0].isupper()}
    return type(f"Later{base.__name__}", (base,), methods)()

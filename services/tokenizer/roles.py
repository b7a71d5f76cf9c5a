"""Which RPCs a tokenizer process answers."""

from collections.abc import Collection

from services.runtime.errors import UnimplementedError
from services.tokenizer.settings import Role


class RoleMissingError(UnimplementedError):
    """The process does not have the role that the RPC belongs to; another process may."""

    def __init__(self, method: str, role: Role, roles: Collection[Role]) -> None:
        super().__init__(method)
        self.message = (
            f"{method}: this tokenizer process has the roles {', '.join(sorted(roles))}; "
            f"ask one that has the role {role.value}."
        )
        self.args = (self.message,)


def require_role(method: str, role: Role, roles: Collection[Role]) -> None:
    """Raises RoleMissingError unless `role` is among the process's roles."""
    if role not in roles:
        raise RoleMissingError(method, role, roles)

"""What vLLM leaves in the file system when a process of its ends in any way but its own: found by name, and removed.

Sockets and the devices' meeting point go to a folder of the engine's own; shared memory is named after that folder.
"""

import os
import shutil
import tempfile
from pathlib import Path

from services.runtime.start import StartRefusedError

PREFIX = "hotline-engine-"
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where shm_open puts it
_VARIABLE = "VLLM_RPC_BASE_PATH"
"""Where vLLM puts its sockets; its processes inherit it."""


_SOCKET_NAME_BYTES = 1 + 36
"""A slash and the UUID that vLLM calls a socket by."""
_SOCKET_PATH_BYTES = 107
"""Longest path of a unix socket (sun_path)."""


def create_folder() -> Path:
    """A folder for one engine, made known to vLLM. Raises StartRefusedError where its path is too long for sockets."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    if len(os.fsencode(folder)) + _SOCKET_NAME_BYTES > _SOCKET_PATH_BYTES:
        folder.rmdir()
        raise StartRefusedError([f"{folder.parent}: too long a path for unix sockets; set TMPDIR"])
    os.environ[_VARIABLE] = str(folder)
    return folder


def meeting_point() -> str:
    """torch.distributed's init method, in place of vLLM's in the temporary folder. In an engine's process."""
    folder = Path(os.environ[_VARIABLE])
    return f"file://{folder}/vllm_dist_{folder.name}"


def remove_remains(folder: Path) -> None:
    """Remove the folder and the shared memory named after it. Idempotent; the processes must have ended, or be about to."""
    for path in _SHARED_MEMORY.glob(f"vllm_dist_{folder.name}*"):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def remove_own_remains() -> None:
    """The same in an engine's process, whose worker was killed and cannot do it."""
    remove_remains(Path(os.environ[_VARIABLE]))

"""Makes .venv: `make setup`. Runs on the system's Python, with nothing installed; quick when there is nothing to do.
A Python that is too old (from 3.6) must come as far as the message that says so: no newer syntax here, and annotations that
it cannot evaluate in quotes.

The order matters. torch comes first, as its CPU build: from wherever pip is set up to look, else from PyTorch's own
index, which is named for that one package only (pip would ask a further index about every package, and wait for it).
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

OLDEST = (3, 11)
TORCH = "torch==2.13.0+cpu"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
EXTRAS = "cpu,dev"

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENVIRONMENT = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(ENVIRONMENT, "bin", "python")
STAMP = os.path.join(ENVIRONMENT, "hotline-setup")
SHIM = os.path.join(ROOT, "deploy", "setup", "hotline_torch_companions.py")


def main() -> None:
    """Install what is missing."""
    if sys.version_info < OLDEST:
        have, need = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST))
        stop(f"this is Python {have}; {need} or newer is needed: make setup PYTHON=python{need}")
    wanted = fingerprint()
    if os.path.exists(PYTHON) and read(STAMP).split()[:1] == [wanted]:
        return
    start = time.monotonic()
    make_environment()
    step("torch, the CPU build", install_torch)
    step("hotline and everything it needs", lambda: pip("--editable", f"{ROOT}[{EXTRAS}]"))
    step("torchvision and torchaudio beside it", install_shim)
    elapsed_s = time.monotonic() - start
    with open(STAMP, "w", encoding="utf-8") as file:
        file.write(f"{wanted} {elapsed_s:.1f}\n")  # the demo tells the time
    print(f"set-up done in {elapsed_s:.0f} s: .venv/bin/hotline", flush=True)


def fingerprint() -> str:
    """Changes when the environment must be made anew: requirements, this script, the place, the Python."""
    digest = hashlib.sha256(f"{ROOT} {sys.version}".encode())
    for path in (os.path.join(ROOT, "pyproject.toml"), os.path.abspath(__file__), SHIM):
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def read(path: str) -> str:
    """A file's text; empty where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def make_environment() -> None:
    """Make .venv with pip in it, unless it is there."""
    if os.path.exists(PYTHON):
        return
    command = [sys.executable, "-m", "venv", "--clear", ENVIRONMENT]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        said = done.stdout.decode(errors="replace").strip()
        stop(f"{said}\ncannot make .venv; on Debian and Ubuntu: apt-get install python3-venv")


def install_torch() -> None:
    """Both ways, the plain one first."""
    try:
        pip(TORCH, quiet=True)
    except subprocess.CalledProcessError:
        pip("--no-deps", "--index-url", CPU_INDEX, TORCH)


def install_shim() -> None:
    """Put the module and the line that imports it where Python looks at its start."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = subprocess.check_output([PYTHON, "-c", ask], text=True).strip()
    shutil.copy(SHIM, folder)
    with open(os.path.join(folder, "hotline_torch_companions.pth"), "w", encoding="utf-8") as file:
        file.write("import hotline_torch_companions\n")
    subprocess.check_call([PYTHON, "-c", "import torchvision, torchaudio"])


def pip(*arguments: str, quiet: bool = False) -> None:
    """Install. Raises CalledProcessError; pip says why, unless it is to be quiet."""
    command = [PYTHON, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    hidden = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} if quiet else {}
    subprocess.run([*command, *arguments], check=True, timeout=3600, **hidden)


def step(name: str, action: "Callable[[], None]") -> None:
    """Say what is being done, and what failed."""
    print(f"set-up: {name} ...", flush=True)
    try:
        action()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        stop(f"set-up failed at: {name} ({error})")


def stop(message: str) -> None:
    """End with a message."""
    sys.exit("error: " + message)


if __name__ == "__main__":
    main()

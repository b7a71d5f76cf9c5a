"""One real gateway process with nobody behind it, which is enough to ask who may come in."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hotline.v1 import model_pb2, model_pb2_grpc

LIMIT_S = 60.0


class GatewayProcess:
    """`hotline gateway` on unix sockets of a folder."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.address = f"unix:{folder}/gateway.sock"
        self.admin_address = f"unix:{folder}/admin.sock"
        self._log = folder / "gateway.log"
        values = {
            "address": self.address,
            "admin_address": self.admin_address,
            "tokenizers": json.dumps({"tokenizer-0": f"unix:{folder}/no-tokenizer"}),
            "workers": json.dumps({"worker-0": f"unix:{folder}/no-worker"}),
            "drain_notice_s": "0",
            "drain_grace_s": "0",
            **settings,
        }
        environment = folder / "gateway.json"
        variables = {f"HOTLINE_GATEWAY_{key.upper()}": str(value) for key, value in values.items()}
        environment.write_text(json.dumps(variables))
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "services.cli", "gateway"),
                    *("--environment", str(environment)),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, "GRPC_VERBOSITY": "ERROR"},
            )

    @property
    def log(self) -> str:
        """All that it wrote."""
        return self._log.read_text()

    def until_up(self) -> None:
        """Wait until it answers."""
        self.until_logged('"state": "WARMING"')
        with grpc.insecure_channel(self.address) as channel:
            health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=LIMIT_S, wait_for_ready=True
            )

    def code(self, key: str | None) -> str:
        """What a call with this key ends with: OK, UNAUTHENTICATED, ..."""
        sent = () if key is None else (("authorization", f"Bearer {key}"),)
        with grpc.insecure_channel(self.address) as channel:
            stub = model_pb2_grpc.ModelServiceStub(channel)
            try:
                stub.ListModels(model_pb2.ListModelsRequest(), timeout=LIMIT_S, metadata=sent)
            except grpc.RpcError as error:
                return str(error.code().name)
        return "OK"

    def until_logged(self, words: str, count: int = 1) -> None:
        """Wait for a line in its log."""
        deadline_s = time.monotonic() + LIMIT_S
        while self.log.count(words) < count:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline_s, self.log
            time.sleep(0.02)

    def stop(self) -> int:
        """End it, where it has not ended; its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def hang_up(self) -> None:
        """Send SIGHUP."""
        self.process.send_signal(signal.SIGHUP)


@contextmanager
def running_gateway(folder: Path, **settings: object) -> Iterator[GatewayProcess]:
    """A gateway for the block; it must live to the block's end."""
    gateway = GatewayProcess(folder, **settings)
    try:
        gateway.until_up()
        yield gateway
        assert gateway.process.poll() is None, gateway.log
    finally:
        gateway.stop()


def key_command(*arguments: str) -> str:
    """Run `hotline key ...`; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "services.cli", "key", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()

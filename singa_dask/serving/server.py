"""ModelServer: serve a model over HTTP at a port of this machine."""

from __future__ import annotations

import math
import socket
import threading

import uvicorn

from singa_dask.errors import ConfigError
from singa_dask.inference.model import Model
from singa_dask.serving.app import App
from singa_dask.serving.batcher import Limits

BACKLOG = 2048
# maximum seconds that the batcher's thread may take to end after the last request
ENDS_WITHIN_S = 2.0


class ModelServer:
    """Serves a model in its own threads, from `start` until `stop`.

    Parameters
    ----------
    model : Model
    limits : Limits
    host : str
    port : int
        Port; 0 uses any free port.
    layer : str, optional
        Layer to predict from if a request does not name one.
    threshold : float, optional
        Probability from which on the second of two classes of ``layer`` is predicted; see `Model.predict`.

    Attributes
    ----------
    url : str
    app : App

    Raises
    ------
    ConfigError
        The port is not available, the net cannot be served, or the threshold does not suit it.
    """

    def __init__(
        self,
        model: Model,
        limits: Limits,
        host: str = "127.0.0.1",
        port: int = 0,
        layer: str | None = None,
        threshold: float | None = None,
    ) -> None:
        self._socket = _listen(host, port)
        try:
            self.app = App(model, limits, layer, threshold)
        except BaseException:
            self._socket.close()
            raise
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._socket.getsockname()[1]}"
        self._timeout_s = limits.timeout_s
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.app.asgi,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                limit_concurrency=limits.max_connections + 1,  # uvicorn rejects requests when this number is reached
                timeout_graceful_shutdown=math.ceil(limits.timeout_s) + 1,
            )
        )
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="serve-http", daemon=True)

    def start(self) -> None:
        """Start answering requests."""
        self._thread.start()

    def stop(self) -> None:
        """Refuse new requests, and end after the current requests are answered. Does not wait."""
        self.app.ending = True
        self._server.should_exit = True

    def wait(self) -> None:
        """Wait until the server has ended; raise the error that ended it, if there was one."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def __enter__(self) -> ModelServer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self.wait()

    def _run(self) -> None:
        try:
            self._server.run([self._socket])
        except BaseException as error:
            self._error = error
        finally:
            self._socket.close()
            self.app.close()
            self.app.batcher.join(self._timeout_s + ENDS_WITHIN_S)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        # asyncio's create_server appends the address to the error text
        text = str(error.strerror or error).partition(" (while")[0]
        hint = "Choose another --port, or 0 for any that is free."
        raise ConfigError(f"{host}:{port}: cannot listen there: {text}. {hint}") from None
    # connections inherit this option; without it, the body of an answer waits 40 ms for the acknowledgement of its head
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening

"""Serves the emulator over HTTP and WebSocket, at little cost a request: a step makes several, one after another.

The server that the emulator brings reads and writes HTTP in Python, which takes longer over a request than the emulator
over most of its answers. Uvicorn with httptools does it in C.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import uvicorn

_IDLE = 75
"""Seconds that a connection stays open without a request."""


async def serve(app: Callable[..., Any], address: tuple[str, int], stop: asyncio.Event, *, grace: int) -> None:
    """Serve `app` at `address` until `stop`; requests under way then get `grace` seconds.

    Raises:
        RuntimeError: When the address is taken or the application does not start; the log says which.
    """
    server = _Server(_config(app, address, grace))
    stopping = asyncio.create_task(_stop_with(server, stop))
    try:
        await server.serve()
    except SystemExit as left:
        raise RuntimeError(f"The emulator cannot serve at {address[0]}:{address[1]}; see the log above.") from left
    finally:
        stopping.cancel()


def _config(app: Callable[..., Any], address: tuple[str, int], grace: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        *address,
        http="httptools",
        ws="wsproto",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # the emulator reads them itself
        server_header=False,  # which headers AWS sends is the emulator's to say
        date_header=False,
        ws_ping_interval=None,  # nor does API Gateway ping its clients
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=grace,
        reset_contextvars=True,  # they hold a request's account and region, which are no business of the next request
    )


async def _stop_with(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the launcher."""
        yield

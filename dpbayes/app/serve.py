"""The page's server: it runs until the page is closed, or a signal comes."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import uvicorn

from dpbayes.app.gate import HOST, Gate
from dpbayes.app.project import PRIVATE_FILE, Project
from dpbayes.app.site import Site
from dpbayes.core.errors import OutputError
from dpbayes.core.lazy import filelock

LOOK = 0.5  # seconds between looks whether the page is still open


def serve(project: Project, port: int, say: Callable[[str], None]) -> None:
    """Serve the page of a release in the making, until it is closed.

    Args:
        project: the release in the making.
        port: port of the loopback interface; 0 for any that is free.
        say: receives the address to open.
    Raises:
        OutputError: the port is taken, or another program has the folder open.
    """
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise OutputError(f"--port {port}: {error.strerror}.") from None
    # Requests of others, with what they sent, are not for the terminal; faults are printed (site).
    logging.getLogger("uvicorn").addHandler(logging.NullHandler())
    logging.getLogger("uvicorn").propagate = False
    site = Site(project)
    gate = Gate(site.app(), listening.getsockname()[1])
    site.root = gate.root
    config = uvicorn.Config(
        gate,
        log_config=None,  # addresses have the token
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        ws="none",
    )
    lock = filelock.FileLock(project.lock, timeout=0, mode=PRIVATE_FILE, fallback_to_soft=False)
    try:
        with lock:  # or what one page shows another would change
            say(f"Open {gate.address} (once, in one browser; Ctrl-C ends it)")
            asyncio.run(_until_closed(uvicorn.Server(config), site, listening))
    except filelock.Timeout:
        raise OutputError(
            f"--work {str(project.folder)!r}: another dpbayes app has it open; end it first."
        ) from None
    finally:
        listening.close()
        site.end()


async def _until_closed(server: uvicorn.Server, site: Site, listening: socket.socket) -> None:
    """Serve until nobody looks any more."""

    async def watch() -> None:
        while not server.should_exit:
            await asyncio.sleep(LOOK)
            server.should_exit = server.should_exit or site.deserted

    watching = asyncio.create_task(watch())
    await server.serve(sockets=[listening])
    watching.cancel()

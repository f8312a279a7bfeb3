"""Dask clusters: safe scheduler addresses, connections, and work spread over the workers."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from dpbayes.core.errors import DpbayesError, EngineError

if TYPE_CHECKING:
    import distributed

_ADDRESS = re.compile(
    r"(?:tcp|tls)://(?:(?P<host>[\w.-]+)|\[(?P<ip>[0-9a-fA-F:.]+)\]):(?P<port>\d{1,5})"
)
TIMEOUT = 10.0  # seconds to reach a scheduler
AHEAD = 2  # parts for each worker that are submitted before their results are awaited


def check_scheduler(text: str) -> None:
    """Accept only addresses on this machine or with TLS, which nobody in between can misuse.

    Raises:
        EngineError: the text is no such address (Dask would read others as a file, the name of a
            backend or nothing), or it is on another machine and without TLS.
    """
    address = _ADDRESS.fullmatch(text)
    if address is None or not 0 < int(address["port"]) < 2**16:
        raise EngineError(f"scheduler {text!r}: expected tcp://HOST:PORT or tls://HOST:PORT.")
    host = address["host"] or address["ip"]
    try:
        own = host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name
        own = False
    if own or text.startswith("tls://"):
        return
    raise EngineError(
        f"`scheduler` {text!r} is on another machine and does not use TLS: Dask sends Python "
        "code, and whoever reaches the connection could run their own. Give the scheduler, its "
        "workers and this machine certificates (https://distributed.dask.org/en/stable/tls.html) "
        "and name it as tls://HOST:PORT, or forward its port to tcp://127.0.0.1:PORT."
    )


# Applies a function to parts and to items beside them; results are in the order of the parts.
Spread = Callable[[Callable[..., Any], Iterator[Any], Sequence[Iterable[object]]], Iterator[Any]]


@contextmanager
def connected(scheduler: str) -> Iterator[distributed.Client]:
    """Connect a Dask client to a scheduler.

    Raises:
        EngineError: as ``check_scheduler``, Dask is not installed, or the scheduler cannot be
            reached.
    """
    check_scheduler(scheduler)
    try:
        import dask
        from distributed import Client
    except ImportError:
        raise EngineError('this runs on Dask: pip install "dpbayes[large]".') from None
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        try:
            client = Client(scheduler, timeout=TIMEOUT, set_as_default=False)
        except TypeError:  # what Dask raises without certificates
            raise EngineError(
                f"scheduler {scheduler!r} needs certificates: set distributed.comm.tls in "
                "Dask's configuration."
            ) from None
        except (OSError, TimeoutError, ValueError) as error:
            raise EngineError(
                f"no Dask scheduler answers at {scheduler!r} within {TIMEOUT:g} s "
                f"({type(error).__name__}). Start one with `dask scheduler`, and workers with "
                "`dask worker ADDRESS`, of one thread each."
            ) from None
        with client:
            yield client


@contextmanager
def on_cluster(scheduler: str) -> Iterator[Spread]:
    """Provide a function that applies another to parts on a cluster, for ``open_records``.

    Args:
        scheduler: address of the scheduler, see ``check_scheduler``.
    Raises:
        EngineError: as ``connected``.
    """
    with connected(scheduler) as client:

        def spread(
            work: Callable[..., Any], parts: Iterator[Any], beside: Sequence[Iterable[Any]]
        ) -> Iterator[Any]:
            return _spread(client, work, parts, beside)

        yield spread


def _spread(
    client: Any, work: Callable[..., Any], parts: Iterator[Any], beside: Sequence[Iterable[Any]]
) -> Iterator[Any]:
    """Yield results in the order of the parts, with a few parts submitted at a time."""
    workers = len(client.scheduler_info(n_workers=-1)["workers"])
    if not workers:
        raise EngineError("the Dask scheduler has no workers: start some with `dask worker`.")
    waiting: deque[Any] = deque()
    for part in zip(parts, *beside, strict=False):
        waiting.append(client.submit(work, *part, pure=False))
        if len(waiting) >= AHEAD * workers:
            yield _result(waiting.popleft())
    while waiting:
        yield _result(waiting.popleft())


def _result(future: Any) -> Any:
    try:
        return future.result()
    except DpbayesError:
        raise
    except Exception as error:  # its words can hold values of records
        raise EngineError(
            f"a part could not be counted on the cluster ({type(error).__name__}). Workers need "
            "dpbayes with the same extras, and files under the same path."
        ) from None

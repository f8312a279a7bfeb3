"""A PostgreSQL server for tests, on a socket in a temporary directory."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

_FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
BIN = Path(shutil.which("initdb") or (_FOUND[-1] if _FOUND else "initdb")).parent
_REQUIRED = bool(os.environ.get("DPBAYES_REQUIRE_POSTGRESQL"))  # then missing is a failure
NO_POSTGRESQL = "" if _REQUIRED or (BIN / "initdb").is_file() else "PostgreSQL is not installed"


@contextlib.contextmanager
def server(**settings: str) -> Iterator[str]:
    """The URL of a new server's database ``postgres``, for SQLAlchemy.

    Args:
        settings: of the server, besides those of a test.
    """
    # PostgreSQL refuses to run as root; Debian's package brings a user for it.
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    directory = Path(tempfile.mkdtemp(prefix="dpbayes-pg-"))
    if os.geteuid() == 0:
        shutil.chown(directory, user)
    as_user = {"user": user} if os.geteuid() == 0 else {}
    quiet = {"stdout": subprocess.DEVNULL, "cwd": directory, **as_user}
    data = directory / "data"
    initdb = [BIN / "initdb", "-D", data, "-A", "trust", "-N", "-U", "tester"]
    subprocess.run(initdb, check=True, **quiet)
    options = f"-c listen_addresses= -c unix_socket_directories={directory} -c max_connections=80"
    options += "".join(f" -c {name}={value}" for name, value in settings.items())
    log = directory / "log"
    control = [BIN / "pg_ctl", "-D", data, "-w", "-l", log]
    subprocess.run([*control, "-o", options, "start"], check=True, **quiet)
    try:
        yield f"postgresql://tester@/postgres?host={directory}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, **quiet)
        shutil.rmtree(directory, ignore_errors=True)

"""Answers that are no step's page: files, pages about a release, and faults."""

from __future__ import annotations

import io
import traceback
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dpbayes.app.gate import REPORT_POLICY

MOST_COLUMNS = 10**6
NOTHING = Response("There is no such page.", 404)


def report_page(path: Path | None) -> Response:
    """A page about the release, or nothing if it is not written yet."""
    if path is None:
        return NOTHING
    policy = {"content-security-policy": REPORT_POLICY}
    return HTMLResponse(path.read_text(encoding="utf-8"), headers=policy)


def zipped(files: Mapping[str, Path]) -> bytes:
    """Files of a release as one."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files.items():
            archive.write(path, f"release/{name}")
    return packed.getvalue()


def download(name: str, content: bytes) -> Response:
    """A file to save under a name."""
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    return Response(content, media_type="application/octet-stream", headers=headers)


async def fault(request: Request, error: Exception) -> Response:
    """Answer where the program is at fault; the person who started it sees where."""
    traceback.print_exception(error)
    return Response("This is a fault of dpbayes, not yours: see where you started it.", 500)


def place_of(request: Request) -> int:
    """Number of a column, from the address."""
    text = str(request.path_params["place"])
    return int(text) if text.isdecimal() and len(text) < 7 else MOST_COLUMNS

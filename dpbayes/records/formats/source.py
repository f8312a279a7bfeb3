"""Files as streams of bytes, unpacked from gzip, bzip2, xz, or a zip archive of one file."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dpbayes.core.errors import DataError, refused

_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip"}
_ENDINGS = (".gz", ".bz2", ".xz", ".zip")
_ZIPPED = (".xlsx", ".xlsm", ".xlsb", ".ods")  # formats that are zip files themselves
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


def is_address(source: object) -> bool:
    """True if a source has a scheme, as in postgresql://user@host/database."""
    return isinstance(source, str) and re.match(r"[\w+.-]{2,}:(//|$)", source) is not None


def place(source: str | Path) -> Path:
    """Location of records for people; of an address only the scheme, as it may have a password."""
    if is_address(source):
        return Path(f"{str(source).partition(':')[0]}:")
    return Path(source).absolute()


@dataclass(frozen=True)
class File:
    """A file of records.

    Attributes:
        path: path of the file.
        name: name of its unpacked content, whose ending tells the format.
        packed: compression, "gzip", "bzip2", "xz" or "zip"; empty if there is none.
    """

    path: Path
    name: str
    packed: str = ""

    @classmethod
    def of(cls, path: Path) -> File:
        """Recognise a file by its first bytes; DataError if it is missing or holds several."""
        where = f"data file {str(path)!r}"
        if "\0" in str(path):
            raise DataError(f"{where}: no file has such a name.")
        with as_data_error(where):
            if path.is_dir():
                raise DataError(f"{where} is a folder; name a file in it.")
            if path.exists() and not path.is_file():
                raise DataError(f"{where} is a pipe or a device: write the records to a file.")
            with open(path, "rb") as stream:
                start = stream.read(6)
            if start.startswith(_ZSTANDARD):
                raise DataError(f"{where} is packed by zstandard; unpack it first: unzstd.")
            packed = next((kind for magic, kind in _PACKED.items() if start.startswith(magic)), "")
            if not packed and path.suffix.lower() in _ENDINGS:
                raise DataError(f"{where} is not packed, as its ending says: rename it.")
            if not packed or path.suffix.lower() in _ZIPPED:
                return cls(path, path.name)
            if packed == "zip":
                return cls(path, _members(path, where)[0], packed)
        inside = path.stem if path.suffix.lower() in _ENDINGS else path.name
        return cls(path, inside, packed)

    @property
    def ending(self) -> str:
        """Ending of the unpacked file, in lower case, with the dot."""
        return Path(self.name).suffix.lower()

    @property
    def where(self) -> str:
        """Name of the file for messages."""
        return f"data file {str(self.path)!r}"

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the unpacked bytes; errors of the file are raised as DataError."""
        with as_data_error(self.where), contextlib.ExitStack() as stack:
            stream: IO[bytes]
            if self.packed == "zip":
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                stream = _member(archive, self.name, self.where)
            else:
                kinds = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
                stream = kinds.get(self.packed, open)(self.path, "rb")  # type: ignore[operator]
            yield stack.enter_context(stream)

    @contextlib.contextmanager
    def seekable(self) -> Iterator[IO[bytes]]:
        """Open the unpacked bytes for libraries that seek in a file."""
        with self.opened() as stream:
            yield io.BytesIO(stream.read()) if self.packed else stream


def _members(path: Path, where: str) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        files = [member.filename for member in archive.infolist() if not member.is_dir()]
    files = [name for name in files if not name.startswith("__MACOSX/")]
    if len(files) != 1:
        raise DataError(f"{where} holds {len(files)} files; unpack it, and name one of them.")
    return files


def _member(archive: zipfile.ZipFile, name: str, where: str) -> IO[bytes]:
    try:
        return archive.open(name)
    except (RuntimeError, NotImplementedError):
        raise DataError(
            f"{where} cannot be unpacked: it has a password, or is packed in a way that Python "
            "does not know. Unpack it first."
        ) from None


def parsed(where: str) -> contextlib.AbstractContextManager[None]:
    """Context manager that raises a library's errors about a file as DataError."""
    return refused(
        DataError, f"{where} cannot be read: it is damaged, cut short, or of another format"
    )


@contextlib.contextmanager
def as_data_error(where: str) -> Iterator[None]:
    """Raise errors of the file system and of unpacking as DataError."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{where} does not exist.") from None
    except (
        gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile,
        NotImplementedError,  # unknown version of zip
    ):  # fmt: skip
        raise DataError(f"{where} cannot be unpacked: it is damaged or cut short.") from None
    except OSError as error:
        raise DataError(f"{where}: {error.strerror or 'cannot be read'}.") from None

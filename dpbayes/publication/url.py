"""Location of a ledger: a file name or a URL, whose password is never printed.

The printed form of a URL consists of parts that were checked to contain no password. A text that
cannot be parsed with certainty is refused without being repeated: the boundaries of the parts of a
malformed URL are a guess, which might show half of a password.
"""

from __future__ import annotations

import re

from dpbayes.core.errors import LedgerError
from dpbayes.core.lazy import sa

HIDDEN = "***"
# Names of users, hosts and databases. Other characters must be written as %NN in a URL, or belong
# to a password that was not escaped: "user:pa@ss@host" would have a host "ss@host".
_NAME = re.compile(r"[\w.+~$-]*")
_OF_PASSWORDS = re.compile(r"[@/;?#\s]")  # unescaped before the last @, they are part of a password
_ADDRESS = re.compile(r"[0-9a-f:.]+", re.IGNORECASE)  # IPv4 or IPv6
_SCHEME = re.compile(r"[^/\\]{2,}:")  # one letter and a colon is a drive of Windows
_KEYWORDS = re.compile(  # the keyword form of libpq connection strings, which is refused
    r"(^|[\s;])(host|hostaddr|port|dbname|database|user|service|pass\w*|pwd|sslpassword)\s*=",
    re.IGNORECASE,
)
_FILE = re.compile(r"[\w./~+][\w./~+\\ -]*")  # names of files that cannot be taken for a login
_HOSTS = re.compile(r"[\w./,+~-]*")  # host= in a query: a list of hosts or of folders with sockets
_OPEN = (  # keys of a query whose values are not secret; all others may be
    "host", "hostaddr", "port", "dbname", "user", "service", "application_name", "options",
    "connect_timeout", "sslmode", "sslrootcert", "target_session_attrs",
)  # fmt: skip
_LOGIN = re.compile(r"(?<!\S)\S*?:\S")  # user:password
_LIKE_PASSWORDS = (  # each with its replacement
    # user@host:password, but not a port
    (re.compile(r"(@[^\s/:@]*:)(?!\d{1,5}[.,;)'\"]*(?:[/?\s]|$))\S+"), rf"\1{HIDDEN}"),
    (re.compile(r"([?&](?!host=)\w+=)[^\s&]*"), rf"\1{HIDDEN}"),  # ?key=value
    (
        re.compile(
            r"""((?:pass(?:word|wd|phrase)?|pwd)["']?\s*[=:]\s*|--?(?:pass\w*|pwd)\s+)"""
            r"""('(?:\\.|[^'\\])*'|"[^"]*"|\S+)""",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
)


def redact(text: str) -> str:
    """Replace all that looks like a password in a text, rather too much than too little.

    It is for text that a user typed and that comes back in an error or a note. Messages of dpbayes
    show a ledger's URL by ``shown``, and hold no @ of their own.
    """
    text = "\n".join(map(_without_login, text.split("\n")))
    for pattern, instead in _LIKE_PASSWORDS:
        text = pattern.sub(instead, text)
    return text


def _without_login(line: str) -> str:
    """Hide all from the first user:password of a line to its last @.

    Spaces may be part of a password. One pattern for this would take cubic time.
    """
    head, at, tail = line.rpartition("@")
    login = _LOGIN.search(head)
    return line if login is None else f"{head[: login.start()]}{HIDDEN}{at}{tail}"


def read_url(text: str) -> sa.URL:
    """Parse the location of a ledger, a file name or an SQLAlchemy URL.

    Raises:
        LedgerError: it is neither; the message does not repeat the text.
    """
    if "\0" in text:  # no file has it in its name, and no system call takes it
        raise _unreadable()
    if "://" not in text:
        of_server = "?" in text or (":" in text and "@" in text)
        if of_server or _SCHEME.match(text) or _KEYWORDS.search(text):
            raise _unreadable()
        url = sa.URL.create("sqlite", database=text)  # the name as it is, %41 included
    else:
        try:
            url = sa.make_url(text)
        except (sa.exc.ArgumentError, ValueError):
            raise _unreadable() from None
    kind = url.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise LedgerError(f"a ledger lives in sqlite or postgresql, not in {redact(kind)}.")
    if kind == "postgresql":
        if _OF_PASSWORDS.search(text.partition("://")[2].rpartition("@")[0]) or not _certain(url):
            raise _unreadable()
        return url.set(drivername="postgresql+psycopg")
    if (url.username, url.password, url.host, url.port) != (None,) * 4 or url.query:
        raise _unreadable()
    if not url.database or url.database == ":memory:":
        raise LedgerError("an in-memory ledger is not persistent; give a file name.")
    return url.set(drivername="sqlite")


def told(name: str) -> str:
    """A file that is not there, for a message: its name, unless it may be a login misspelt."""
    return repr(name) if _FILE.fullmatch(name) else "(its name is not repeated: a password?)"


def shown(url: sa.URL) -> str:
    """Printable form of a URL: the file, or the server and its database."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    host = url.host or ""
    if ":" in host:
        host = f"[{host}]"
    port = "" if url.port is None else f":{url.port}"
    socket = url.query.get("host", "")
    socket = socket if isinstance(socket, str) else ",".join(socket)
    query = f"?host={socket if _HOSTS.fullmatch(socket) else HIDDEN}" if socket else ""
    return f"postgresql://{host}{port}/{url.database or ''}{query}"


def without_secrets(url: sa.URL, said: str) -> str:
    """Remove the secrets of a URL from a driver's message."""
    secrets = [url.password]
    for key, value in url.query.items():
        if key not in _OPEN:
            secrets += [value] if isinstance(value, str) else list(value)
    for secret in sorted({str(s) for s in secrets if s}, key=len, reverse=True):
        said = said.replace(secret, HIDDEN)
    return redact(said)


def _certain(url: sa.URL) -> bool:
    """True if no part of a URL can contain a piece of a password."""
    names = (url.username or "", url.database or "")
    host = url.host or ""
    return all(map(_NAME.fullmatch, names)) and bool(
        _NAME.fullmatch(host) or _ADDRESS.fullmatch(host)
    )


def _unreadable() -> LedgerError:
    return LedgerError(
        "the ledger's URL cannot be read; expected a file name, sqlite:///FILE or "
        "postgresql://HOST/DATABASE. Write special characters of a user's name or password as "
        "%NN; better keep the password in ~/.pgpass."
    )

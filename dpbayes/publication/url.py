"""Where a ledger is: a file name or a URL, of which no password is ever printed.

What is shown of a URL is put together from parts that were checked to hold no password, and a text
that cannot be read with certainty is refused without being repeated: where one part begins in a
malformed URL is a guess, and the guess may show half of a password.
"""

from __future__ import annotations

import re

from dpbayes.core.errors import LedgerError
from dpbayes.core.lazy import sa

HIDDEN = "***"
# What a user, host or database can be called here. Other characters are written as %NN in a URL
# only, or belong to a password that was not: "user:pa@ss@host" has a host "ss@host".
_NAME = re.compile(r"[\w.+~$-]*")
_OF_PASSWORDS = re.compile(r"[@/;?#\s]")  # before the last @ they are part of one, or of nothing
_ADDRESS = re.compile(r"[0-9a-f:.]+", re.IGNORECASE)  # with colons: IPv6
_SCHEME = re.compile(r"[^/\\]{2,}:")  # one letter and a colon is a drive of Windows
_KEYWORDS = re.compile(  # libpq's other way to say where a database is
    r"(^|[\s;])(host|hostaddr|port|dbname|database|user|service|pass\w*|pwd|sslpassword)\s*=",
    re.IGNORECASE,
)
_HOSTS = re.compile(r"[\w./,+~-]*")  # of a query: sockets are folders, and there may be several
_OPEN = (  # keys of a query whose values are no secret; all others may be
    "host", "hostaddr", "port", "dbname", "user", "service", "application_name", "options",
    "connect_timeout", "sslmode", "sslrootcert", "target_session_attrs",
)  # fmt: skip
_LIKE_PASSWORDS = (  # each with what stands in its place; spaces may be part of a password
    (re.compile(r"\S*:\S.*@"), f"{HIDDEN}@"),  # user:password@
    (re.compile(r"(@[^\s/:]*:)(?!\d+\b)\S+"), rf"\1{HIDDEN}"),  # user@host:password
    (re.compile(r"([?&](?!host=)\w+=)[^\s&]*"), rf"\1{HIDDEN}"),  # ?key=value
    (
        re.compile(
            r"(pass(?:word|wd|phrase)?|pwd)(\s*=\s*)('(?:\\.|[^'\\])*'|\"[^\"]*\"|\S+)",
            re.IGNORECASE,
        ),
        rf"\1\2{HIDDEN}",
    ),
)


def redact(text: str) -> str:
    """A text for people without what looks like a password in it, rather too much than too little.

    For what was typed and comes back in an error or a note. What the ledger itself says of its URL
    is made by ``shown``.
    """
    for pattern, instead in _LIKE_PASSWORDS:
        text = pattern.sub(instead, text)
    return text


def read_url(text: str) -> sa.URL:
    """The URL of a ledger, from a file name or a URL of SQLAlchemy's form.

    Raises:
        LedgerError: it is neither; the text is not repeated.
    """
    if "\0" in text:  # no file has it in its name, and no system call takes it
        raise _unreadable()
    if "://" not in text:
        if _SCHEME.match(text) or _KEYWORDS.search(text) or (":" in text and "@" in text):
            raise _unreadable()
        text = f"sqlite:///{text}"
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
    if not url.database:
        raise LedgerError("a ledger in memory would forget; name a file.")
    return url.set(drivername="sqlite")


def shown(url: sa.URL) -> str:
    """For people: the file, or the server and its database."""
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
    """What a driver said, without the passwords of the URL that it was given."""
    secrets = [url.password]
    for key, value in url.query.items():
        if key not in _OPEN:
            secrets += [value] if isinstance(value, str) else list(value)
    for secret in sorted({str(s) for s in secrets if s}, key=len, reverse=True):
        said = said.replace(secret, HIDDEN)
    return redact(said)


def _certain(url: sa.URL) -> bool:
    """Its parts are what they seem: none of them can hold a piece of a password."""
    names = (url.username or "", url.database or "")
    host = url.host or ""
    return all(map(_NAME.fullmatch, names)) and bool(
        _NAME.fullmatch(host) or _ADDRESS.fullmatch(host)
    )


def _unreadable() -> LedgerError:
    return LedgerError(
        "the ledger's URL cannot be read; expected a file name, sqlite:///FILE or "
        "postgresql://USER@HOST/DATABASE. Write special characters of a password as %NN (@ is "
        "%40), or better keep it in ~/.pgpass."
    )

"""How names are put into a path, where servers are, and the texts of paths, files and ranges."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from urllib.parse import quote, urlsplit

from .errors import UsageError

_VERBS = frozenset({"acquire", "renew", "release", "test", "check", "break", "unlock"})
_PLAIN = "-._~/:@!$'()*,;="


def path_part(name: str) -> str:
    """A name as part of a path: slashes stay. Only the one before a last segment that could be taken for a verb is
    encoded. Held to ``sdk/vectors/names.jsonl``."""
    before, slash, last = name.rpartition("/")
    if slash and last in _VERBS:
        return f"{quote(before, safe=_PLAIN)}%2F{last}"
    return quote(name, safe=_PLAIN)


def query_value(value: str) -> str:
    return quote(value, safe="-._~")


def parse_servers(text: str) -> list[str]:
    """Reads ``http://host:port`` or ``https://host:port``, or several with commas between them."""
    servers = [parse_server(part.strip()) for part in text.split(",") if part.strip()]
    if not servers:
        raise UsageError("an address is needed, such as http://127.0.0.1:8080")
    return servers


def is_protected(server: str) -> bool:
    """Whether TLS is spoken to it."""
    return server.startswith("https://")


def is_loopback(server: str) -> bool:
    """Whether it is on this machine, so that no other can listen on the way."""
    host = urlsplit(server).hostname or ""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def parse_server(text: str) -> str:
    """Reads one of them."""
    full = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError:
        raise UsageError(f"{text!r} is not a server: write http://host:port or https://host:port") from None
    if parts.scheme not in ("http", "https"):
        raise UsageError(f"{text!r} is not a server: only http:// and https:// are spoken")
    is_bare = parts.path in ("", "/") and not parts.query and not parts.fragment and "@" not in parts.netloc
    if not parts.hostname or not is_bare or any(c.isspace() for c in text):
        raise UsageError(f"{text!r} is not a server: write http://host:port or https://host:port")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if port is None:
        port = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{host}:{port}"


def subtree(path: str) -> str:
    """The name of the lock on a path and all below it: ``path:/srv/a/**``."""
    return f"path:{path.rstrip('/')}/**"


def byte_range(inode: int, start: int = 0, end: int | None = None) -> str:
    """The name of the lock on bytes of a file, from ``start`` up to and not including ``end``: ``inode:42@100..200``.
    Without an end it reaches beyond the end of the file."""
    if start == 0 and end is None:
        return f"inode:{inode}"
    return f"inode:{inode}@{start}..{'' if end is None else end}"

"""The addresses that a dashboard has besides its own: a name in DNS, or a proxy with TLS in front of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from forebay.errors import OptionValueError
from forebay.web.access import is_loopback

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class PublicUrl:
    """`https://pipelines.example`: what stands in the address line of a browser that comes from elsewhere."""

    scheme: str
    name: str
    port: int

    @classmethod
    def of(cls, text: str) -> PublicUrl:
        """OptionValueError for what is no address of a server."""
        try:
            split = urlsplit(text.strip())
            name, port = (split.hostname or "").lower(), split.port
        except ValueError:
            raise _wrong(text) from None
        if split.scheme not in _PORTS or not name or split.username is not None:
            raise _wrong(text)
        if split.path not in ("", "/") or split.query or split.fragment:
            # Pages name their files by paths from the root.
            raise _wrong(text, ": the dashboard is served at the root, so the address has no path")
        return cls(split.scheme, name, port or _PORTS[split.scheme])

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{self.scheme}://{name}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    def has_host(self, name: str, port: int | None, own_port: int) -> bool:
        """Whether a request with this Host came by the address. Some proxies leave the port out, or send the server's own."""
        return name == self.name and port in (None, self.port, own_port)

    def has_origin(self, origin: str) -> bool:
        """Whether a page of this address has made a request. The scheme counts: what came without TLS may be anybody's."""
        try:
            return PublicUrl.of(origin) == self
        except OptionValueError:
            return False


def any_from_elsewhere(urls: Iterable[PublicUrl]) -> bool:
    """Whether people of other machines come by one of them: then a token is required."""
    return any(not is_loopback(each.name) for each in urls)


def _wrong(text: str, reason: str = "") -> OptionValueError:
    return OptionValueError(
        f"'{text}' is no public address of a dashboard{reason}",
        option="public-url",
        remedy="name it as a browser does: --public-url https://pipelines.example",
    )

"""Who is let in: a token that is kept as its hash alone, and the logins that were made with it."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from forebay.errors import OptionValueError

SHORTEST = 16  # characters of a token: one that can be guessed lets everybody in
LOGIN_S = 12 * 3600.0
MOST_LOGINS = 1_000
MOST_FAILED = 20  # wrong tokens of one address in FAILED_S: then none of it is looked at until that is over
FAILED_S = 60.0
MOST_ADDRESSES = 10_000
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
VARIABLE = "FOREBAY_UI_TOKEN"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there. A name such as 127.example.com is none of it."""
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def given_token(file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token of a file, or of the environment; None if there is none. OptionValueError for one that is no good."""
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise OptionValueError(
                f"the token in {file} cannot be read: {reason}", option="token-file"
            ) from None
        return _checked(token, f"the token in {file}")
    found = environment.get(VARIABLE)
    return None if not found else _checked(found.strip(), f"the token in {VARIABLE}")


def _checked(token: str, what: str) -> str:
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise OptionValueError(
            f"{what} is no good: {SHORTEST} printable characters or more, without spaces",
            option="token",
            remedy="make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return token


def new_token() -> str:
    return secrets.token_urlsafe(32)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


@dataclass
class Access:
    """Of one server. Without a token everybody is let in who reaches it, and nobody but this machine does."""

    token_hash: bytes | None = None
    _logins: dict[bytes, float] = field(default_factory=dict)
    _failed: dict[str, list[float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def with_token(cls, token: str | None) -> Access:
        return cls(None if token is None else _hash(token))

    @property
    def required(self) -> bool:
        return self.token_hash is not None

    def is_token(self, given: str) -> bool:
        """In the same time, whatever is given."""
        return self.token_hash is not None and hmac.compare_digest(_hash(given), self.token_hash)

    def is_guessing(self, address: str) -> bool:
        """Whether so many wrong tokens came from an address lately that it has to wait."""
        now = time.monotonic()
        with self._lock:
            return sum(at > now - FAILED_S for at in self._failed.get(address, ())) >= MOST_FAILED

    def failed(self, address: str) -> None:
        """A wrong token came from there."""
        now = time.monotonic()
        with self._lock:
            while len(self._failed) >= MOST_ADDRESSES and address not in self._failed:
                del self._failed[next(iter(self._failed))]
            kept = [at for at in self._failed.get(address, ()) if at > now - FAILED_S]
            self._failed[address] = [*kept, now][-MOST_FAILED:]

    def login(self) -> str:
        """A new login; what is returned goes into a cookie, and only its hash is kept."""
        made, now = secrets.token_urlsafe(32), time.monotonic()
        with self._lock:
            self._logins = {each: until for each, until in self._logins.items() if until > now}
            while len(self._logins) >= MOST_LOGINS:
                del self._logins[min(self._logins, key=lambda each: self._logins[each])]
            self._logins[_hash(made)] = now + LOGIN_S
        return made

    def is_login(self, given: str) -> bool:
        """By its hash: how long a look takes says nothing about what is kept."""
        with self._lock:
            return self._logins.get(_hash(given), 0.0) > time.monotonic()

    def logout(self, given: str) -> None:
        with self._lock:
            self._logins.pop(_hash(given), None)

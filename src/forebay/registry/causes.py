"""Why a schema registry cannot be reached, in words: what happened, at which address, what to do."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from confluent_kafka.schema_registry.common._httpx_compat import httpx

from forebay.errors import AuthError, ForebayError, UnreachableError, WrongProtocolError
from forebay.registry.settings import PREFIX

_PLAIN = re.compile(r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|PACKET_LENGTH_TOO_LONG")
_LOCAL = ("localhost", "127.0.0.1", "::1")


def explained(error: Exception, address: str, doing: str) -> ForebayError:
    """A request without an answer, as one of our errors."""
    cannot = f"cannot reach the schema registry at {address} while {doing}"
    for each in _chain(error):
        match each:
            case ssl.SSLCertVerificationError():
                return _distrusted(each, address, doing)
            case ssl.SSLError() if _PLAIN.search(str(each)):
                return WrongProtocolError(
                    f"cannot talk to the schema registry at {address} while {doing}: it speaks no TLS",
                    remedy=f"'{PREFIX}url' = 'http://…'",
                )
            case ssl.SSLError():
                return AuthError(
                    f"no secure connection to the schema registry at {address} while {doing}: {error}",
                    remedy=f"check '{PREFIX}ssl.ca.location' and the client's certificate and key",
                )
            case socket.gaierror():
                return UnreachableError(
                    f"{cannot}: the name does not resolve ({each.strerror})",
                    remedy="check how it is spelled; a name of Docker or Kubernetes is known only in there",
                )
            case ConnectionRefusedError():
                local = all(urlsplit(url.strip()).hostname in _LOCAL for url in address.split(","))
                return UnreachableError(
                    f"{cannot}: Connection refused, nothing listens there",
                    remedy="start a registry there with: forebay dev up; or name another address"
                    if local
                    else "check the port, and that the registry is up",
                )
    if isinstance(error, httpx.ConnectTimeout):
        return UnreachableError(
            f"{cannot}: the connection timed out",
            remedy="check the address, and that no firewall is between; a refusal would have come at once",
        )
    if isinstance(error, httpx.TimeoutException):
        return UnreachableError(
            f"{cannot}: it accepts the connection, but does not answer",
            remedy="check that it is a schema registry, whether it speaks TLS (https://), and that it is not stuck",
        )
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return UnreachableError(
            f"{cannot}: what listens there does not answer in HTTP ({error})",
            remedy=f"check '{PREFIX}url': whether it speaks TLS (https://), and that the port is not a broker's",
        )
    return UnreachableError(f"{cannot}: {str(error) or type(error).__name__}")


def _distrusted(error: ssl.SSLCertVerificationError, address: str, doing: str) -> AuthError:
    if error.verify_code in (62, 64):  # for another name, or for another IP address
        return AuthError(
            f"the certificate of the schema registry at {address} is for another name, while {doing}: "
            f"{error.verify_message}",
            remedy="name the registry as its certificate does, or have one made for this name",
        )
    return AuthError(
        f"the certificate of the schema registry at {address} is not trusted, while {doing}: {error.verify_message}",
        remedy=f"'{PREFIX}ssl.ca.location' (of a command: SCHEMA_REGISTRY_SSL_CA_LOCATION) = the PEM file of the "
        "authority that signed it",
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

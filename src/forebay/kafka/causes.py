"""Why the brokers cannot be reached, in words: what happened, at which address, what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forebay.errors import AuthError, ForebayError, UnreachableError, WrongProtocolError
from forebay.kafka.probe import At, Probe, Probed
from forebay.options import Options

MOST = 4  # addresses that are asked: more would say the same
_PLACE = re.compile(r"(?:\w+://)?(?P<server>[^/\s]+)/(?P<node>\w+): (?P<text>.*)", re.DOTALL)
_NOISE = re.compile(r" ?\(after \d+ms in state \w+(?:, \d+ identical error\(s\) suppressed)?\)")
_LOCAL = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[?::1\]?):\d+")
_CLIENT_CERTIFICATE = re.compile(r"certificate.required|bad.certificate|handshake.failure", re.IGNORECASE)


@dataclass
class Heard:
    """What the client library has said since the wait began: the last words of each broker."""

    down: dict[str, str] = field(default_factory=dict)
    advertised: set[str] = field(
        default_factory=set
    )  # addresses that came from a broker and not from the options

    def note(self, text: str) -> None:
        place = _PLACE.fullmatch(text)
        if place is None:
            self.down.setdefault("", text)
            return
        self.down[place["server"]] = _NOISE.sub("", place["text"])
        if place["node"].isdigit():
            self.advertised.add(place["server"])

    def clear(self) -> None:
        self.down.clear()
        self.advertised.clear()

    @property
    def words(self) -> str:
        """The library's own words, of one broker if there is one."""
        named = [f"{server}: {text}" for server, text in self.down.items() if server]
        return named[-1] if named else self.down.get("", "")


def servers(options: Options) -> list[str]:
    """The addresses that the brokers are looked for at."""
    found = (each.strip() for each in str(options["bootstrap.servers"]).split(","))
    return list(dict.fromkeys(each for each in found if each))


def probe(options: Options, settings: Mapping[str, Any], heard: Heard) -> Probe:
    """Ask the addresses themselves: those of the options, and those that a broker named and that fail."""
    return Probe([*servers(options), *sorted(heard.advertised)][:MOST], settings)


def certain(
    found: Sequence[Probed], settings: Mapping[str, Any], where: str, doing: str
) -> ForebayError | None:
    """An error that waiting does not fix: all who answer speak something else than we do."""
    answering = [each for each in found if each.at in (At.KAFKA, At.HTTP, At.OTHER)]
    if not answering:
        return None
    explained = [_mismatch(each, settings) for each in answering]
    if any(each is None for each in explained):
        return None
    words, remedy = next(each for each in explained if each is not None)
    return WrongProtocolError(f"cannot talk to Kafka at {where} while {doing}: {words}", remedy=remedy)


def unreachable(
    found: Sequence[Probed], heard: Heard, options: Options, doing: str, otherwise: str
) -> UnreachableError:
    """Nobody who can be talked to. `otherwise` are the words where nothing more is known."""
    where = str(options["bootstrap.servers"])
    parts = dict.fromkeys(_trouble(each, heard) for each in found if each.at is not At.KAFKA)
    words = "; ".join(part for part, _ in parts) or heard.words or otherwise
    remedies = dict.fromkeys(remedy for _, remedy in parts)
    remedy = "; ".join(remedies)
    if all(_LOCAL.fullmatch(server) for server in servers(options)) and all(
        each.at is At.REFUSED for each in found
    ):
        remedy = "start a broker there with: forebay dev up; or name another address"
    return UnreachableError(f"cannot reach Kafka at {where} while {doing}: {words}", remedy=remedy)


def refused(found: Sequence[Probed], text: str, where: str, doing: str) -> AuthError:
    """The connection was made, and then one of the two sides did not trust the other."""
    place = _PLACE.fullmatch(text)
    server = place["server"] if place else where
    said = _NOISE.sub("", place["text"] if place else text)
    for each in found:
        if each.wrong_name:
            return AuthError(
                f"the certificate of {each.server} is for another name, while {doing}: {each.distrust}",
                remedy="name the broker as its certificate does, or have one made for this name; "
                "'kafka.ssl.endpoint.identification.algorithm' = 'none' would not check the name",
            )
        if each.distrust:
            return AuthError(
                f"the certificate of {each.server} is not trusted, while {doing}: {each.distrust} "
                "(certificate verify failed)",
                remedy="'kafka.ssl.ca.location' = the PEM file of the authority that signed it",
            )
    if "SSL" in said and _CLIENT_CERTIFICATE.search(said):
        return AuthError(
            f"{server} refused the TLS connection while {doing}: {said}",
            remedy="if it asks for a client's certificate: 'kafka.ssl.certificate.location' and 'kafka.ssl.key.location', or "
            "'kafka.ssl.keystore.location'",
        )
    if "SSL" in said:
        return AuthError(
            f"no secure connection to {server} while {doing}: {said}",
            remedy="check 'kafka.ssl.ca.location' and 'kafka.security.protocol'",
        )
    offered = re.search(r"supported mechanisms: *([\w,. -]*)", said)
    if "Unsupported SASL mechanism" in said and offered:
        return AuthError(
            f"{server} does not take this way to log in, while {doing}: {said}",
            remedy=f"'kafka.sasl.mechanism' = one of those that it takes: {offered[1].strip()}",
        )
    return AuthError(
        f"{server} refused the login while {doing}: {said}",
        remedy="check 'kafka.sasl.username', 'kafka.sasl.password' and 'kafka.sasl.mechanism'; this is not retried",
    )


def _trouble(found: Probed, heard: Heard) -> tuple[str, str]:
    """What is in the way at one address, and what to do."""
    server, host = found.server, found.server.rpartition(":")[0]
    if server in heard.advertised:
        words, _ = _trouble(found, Heard())
        return (
            f"a broker names {server} as its address, and {words}",
            "'advertised.listeners' of that broker must name an address that is reached from here",
        )
    match found.at:
        case At.UNRESOLVED:
            return (
                f"the name '{host}' does not resolve ({found.reason})",
                "check how it is spelled; a name of Docker or Kubernetes is known only in there",
            )
        case At.REFUSED:
            return (
                f"{server} refuses connections ({found.reason or 'Connection refused'}): nothing listens there",
                "check the port, and that the broker is up",
            )
        case At.UNCONNECTED:
            return (
                f"no answer from {server}: the connection timed out",
                "check the address, and that no firewall is between; a refusal would have come at once",
            )
        case At.SILENT:
            return (
                f"{server} accepts the connection, but does not answer",
                "check that it is a Kafka listener, that 'kafka.security.protocol' is the listener's, and that the broker "
                "is not stuck",
            )
    return (
        f"{server} closes the connection at once" + (f" ({found.reason})" if found.reason else ""),
        "check that it is a Kafka listener, and what the broker's log says",
    )


def _mismatch(found: Probed, settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """How the listener differs from what we speak; None if it does not."""
    server, ours = found.server, str(settings.get("security.protocol", "PLAINTEXT")).upper()
    if found.at is At.HTTP:
        return (
            f"a web server (HTTP) answers at {server}",
            "name a broker's address, such as localhost:9092; a schema registry goes into 'schema.registry.url'",
        )
    if found.at is At.OTHER:
        return f"what answers at {server} is no Kafka", "name a broker's address, such as localhost:9092"
    login = bool(found.mechanisms) if found.mechanisms is not None else "SASL" in ours
    theirs = ("SASL_" if login else "") + ("SSL" if found.tls else "PLAINTEXT")
    if theirs == ours:
        return None
    remedy = f"'kafka.security.protocol' = '{theirs}'"
    wants = []
    if found.tls and "SSL" not in ours:
        wants.append("speaks TLS")
    if not found.tls and "SSL" in ours:
        wants.append("speaks no TLS")
    if found.mechanisms and "SASL" not in ours:
        wants.append(f"asks for a login (SASL {', '.join(found.mechanisms)})")
        remedy += f", 'kafka.sasl.mechanism' = '{found.mechanisms[0]}', 'kafka.sasl.username', 'kafka.sasl.password'"
    if not login and "SASL" in ours:
        wants.append("takes no login (SASL)")
    return f"{server} {' and '.join(wants)}, and 'kafka.security.protocol' is {ours}", remedy

"""Dead letters of Kafka Connect, Spring and Kafka Streams are read as ours."""

from __future__ import annotations

import struct

import pytest

from forebay.deadletter.foreign import letter_of, system_of
from forebay.deadletter.letter import Letter, NotALetterError

Headers = list[tuple[str, bytes | None]]


class Record:
    """A record as confluent-kafka has it."""

    def __init__(self, headers: Headers, value: bytes | None = b"v", key: bytes | None = b"k") -> None:
        self._headers, self._value, self._key = headers, value, key

    def headers(self) -> Headers:
        return self._headers

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def timestamp(self) -> tuple[int, int]:
        return 1, 1234


OWN: Headers = [("trace", b"1"), ("empty", None)]


def test_a_letter_of_connect() -> None:
    about = {
        "topic": b"orders", "partition": b"3", "offset": b"17", "connector.name": b"sink", "stage": b"KEY_CONVERTER",
        "exception.class.name": b"org.apache.kafka.connect.errors.DataException", "exception.message": b"bad",
        "exception.stacktrace": b"at x",
    }  # fmt: skip
    made = letter_of(Record([*OWN, *((f"__connect.errors.{name}", data) for name, data in about.items())]))
    assert made == Letter(
        "connect:sink", "orders", 3, 17, 1234, b"k", b"v", tuple(OWN), "DataException", "bad", 1234, stage="KEY", size=1,
        stacktrace="at x",
    )  # fmt: skip
    assert system_of(made.source) == "connect"


@pytest.mark.parametrize("partition", [struct.pack(">i", 3), b"3"])
def test_a_letter_of_spring(partition: bytes) -> None:
    about: Headers = [
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", partition),
        ("kafka_dlt-original-offset", struct.pack(">q", 17)),
        ("kafka_dlt-original-consumer-group", b"billing"),
        ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
        ("kafka_dlt-exception-cause-fqcn", b"java.lang.IllegalStateException"),
        ("kafka_dlt-exception-message", b"no"),
    ]
    made = letter_of(Record([*OWN, *about]))
    assert (made.source, made.identity.place) == ("spring:billing", "orders/3/17")
    assert (made.kind, made.message, made.headers) == ("IllegalStateException", "no", tuple(OWN))


def test_a_letter_of_streams() -> None:
    about = {"topic": b"orders", "partition": b"3", "offset": b"17", "exception": b"a.B", "message": b"m"}
    made = letter_of(Record([(f"__streams.errors.{name}", data) for name, data in about.items()]))
    assert (made.source, made.identity.place, made.kind) == ("streams:unnamed", "orders/3/17", "B")


def test_our_own_letters_are_ours_though_they_have_the_headers_of_connect() -> None:
    ours = Letter("orders", "orders", 0, 1, 5, b"k", b"v", (), "Other", "m", 6, size=1)
    key, value, headers = ours.to_kafka()
    assert letter_of(Record(headers, value, key)) == ours
    assert system_of(ours.source) is None


@pytest.mark.parametrize(
    "headers", [[], OWN, [("__connect.errors.topic", b"t")], [("kafka_dlt-original-topic", b"t")]]
)
def test_anything_else_is_no_letter(headers: Headers) -> None:
    with pytest.raises(NotALetterError):
        letter_of(Record(headers))

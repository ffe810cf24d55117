"""A letter with all of its record: what it does not carry is read again from where the record is."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from confluent_kafka import Message

from forebay.deadletter.identity import Identity
from forebay.deadletter.letter import Letter
from forebay.deadletter.letterbox import read_records
from forebay.errors import UnknownTopicError
from forebay.kafka.admin import Cluster
from forebay.kafka.offsets import Range
from forebay.options import Options


class RecordGoneError(Exception):
    """The topic does not have the rest any more; the message says so, for a person."""


def whole(letter: Letter, options: Options) -> Letter:
    """The letter itself, if it has all of its record; otherwise with the value that the topic has, checked."""
    unread = letter.size < 0  # whoever wrote the letter did not have the record
    if letter.whole and not unread:
        return letter
    # Where the letter has a digest that tells whether the record is the one; where it has none, the topic must.
    other = unread and _is_another_topic(letter, options)
    message = None if other else read_record(letter.identity, options)
    if message is None:
        raise RecordGoneError(
            "the letter has only a part of the record, and the topic no longer has the rest"
        )
    value = message.value()
    if unread:
        headers = tuple(message.headers() or ())
        return replace(letter, key=message.key(), value=value, headers=headers, size=len(value or b""))
    if value is None or hashlib.sha256(value).hexdigest() != letter.sha256:
        raise RecordGoneError(
            "the letter has only a part of the record, and what the topic has at its offset is not it"
        )
    return replace(letter, value=value, sha256=None)


def read_record(identity: Identity, options: Options) -> Message | None:
    """One record of a topic; None if it is gone."""
    topic, partition, offset, _ = identity
    for messages in read_records([Range(topic, partition, offset, offset + 1)], options):
        for message in messages:
            return message
    return None


def _is_another_topic(letter: Letter, options: Options) -> bool:
    """Whether the topic of that name is not the one that the letter's record was in."""
    if not letter.topic_id:
        return False
    cluster = Cluster(options)
    try:
        return cluster.describe([letter.topic])[letter.topic].id != letter.topic_id
    except UnknownTopicError:
        return True
    finally:
        cluster.close()

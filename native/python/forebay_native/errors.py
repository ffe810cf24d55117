"""What native code raises. `forebay` makes errors of its own tree of these, in `forebay.kafka.settings`."""

from __future__ import annotations


class NotNativeError(ValueError):
    """A format, a plan, a column's type or a setting that native code does not take: Python or librdkafka does."""


class BrokerError(Exception):
    """What a broker refuses, or what is in the way to it. It survives pickling.

    `code` is Kafka's number, or librdkafka's for what no broker says; 0 where waiting may help.
    """

    def __init__(self, code: int, message: str, may_pass: bool) -> None:
        super().__init__(code, message, may_pass)  # as pickling makes it again
        self.code = code
        self.message = message
        self.may_pass = may_pass

    def __str__(self) -> str:
        return self.message

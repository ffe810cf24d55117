"""Whatever goes wrong below a session is one of our errors when it leaves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from forebay.errors import ForebayError, SelectFailedError, UnexpectedError, from_text
from forebay.runtime.clusters import not_set_up


@contextmanager
def ours() -> Iterator[None]:
    """What is raised inside is raised as one of our errors; its cause says the rest."""
    try:
        yield
    except ForebayError:
        raise
    except (PySparkException, Py4JError) as error:
        raise as_ours(error) from error
    except Exception as error:
        raise UnexpectedError(f"{type(error).__name__}: {error}") from error


def as_ours(error: PySparkException | Py4JError) -> ForebayError:
    """One of ours that Spark passed on as text, else what Spark says, without its plans and stacks."""
    text = str(error)
    return from_text(text) or not_set_up(text) or SelectFailedError(f"Spark says: {reason(text)}")


def reason(message: str) -> str:
    """The line of a Python traceback, or of a JVM message, that says what happened."""
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", "... "))]
    if lines and lines[0].startswith("["):  # one of Spark's named conditions
        return lines[0].split(" SQLSTATE:")[0]
    telling = [line for line in lines if "Error" in line or "Exception" in line]
    return (telling or lines or ["no reason given"])[-1][:500]

"""`Forebay`, a sqlglot dialect: Spark's, with our statements in front of it."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot.dialects.spark import Spark

from forebay.sql.ast import EventWindow
from forebay.sql.grammar import ForebayParser


def _event_window(generator: Any, node: Any) -> str:
    return str(generator.func(node.args["name"], *node.expressions))


class Forebay(Spark):
    """Registered with sqlglot as "forebay"."""

    class Tokenizer(Spark.Tokenizer):
        # A command token would swallow the rest of the statement unread.
        COMMANDS: ClassVar[frozenset[Any]] = frozenset()
        # "name" is a name and 'text' is text, as in standard SQL; to Spark both are text.
        QUOTES: ClassVar[list[Any]] = ["'"]
        IDENTIFIERS: ClassVar[list[Any]] = ["`", '"']
        RAW_STRINGS: ClassVar[list[Any]] = [("r'", "'"), ("R'", "'")]
        # Doubling a quote is standard SQL, and Spark 4 agrees.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'"]
        # Eight bits to some databases, eight bytes to others: nobody should have to guess.
        KEYWORDS: ClassVar[dict[str, Any]] = {
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "INT8"
        }

    Parser = ForebayParser

    class Generator(Spark.Generator):
        TRANSFORMS: ClassVar[dict[Any, Any]] = {**Spark.Generator.TRANSFORMS, EventWindow: _event_window}

"""How long a home keeps what people did. Declared once; `forebay.toml` has the same names, and the environment comes first."""

from __future__ import annotations

from forebay.options import Option, OptionTable, integer

LEAST_AUDIT_DAYS = 30  # `audit.db` itself refuses to remove a younger line

RETENTION = OptionTable(
    "What a home keeps",
    (
        Option(
            "audit_retention_days",
            integer(LEAST_AUDIT_DAYS),
            "so long the audit log keeps a line; that lines were removed is a line itself; `FOREBAY_AUDIT_RETENTION_DAYS` comes first",
            "400",
            "1000",
            env="FOREBAY_AUDIT_RETENTION_DAYS",
        ),
        Option(
            "letter_retention_days",
            integer(1),
            "so long what became of a dead letter is kept at least. After that it goes when neither the record nor a letter of it "
            "is in its topic any more; `FOREBAY_LETTER_RETENTION_DAYS` comes first",
            "400",
            "90",
            env="FOREBAY_LETTER_RETENTION_DAYS",
        ),
    ),
)

DAY_MS = 86_400_000


def retention_ms(name: str) -> int:
    """One of these, as it is set now, in milliseconds. OptionValueError."""
    days: int = RETENTION.bind({})[name]
    return days * DAY_MS

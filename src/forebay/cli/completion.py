"""Completion in shells: names of sources and views, from the catalog alone, which is read in milliseconds."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import typer


def complete_source(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, "source", incomplete)


def complete_view(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, "view", incomplete)


def _names(ctx: Any, kind: str, incomplete: str) -> list[str]:
    given = ctx.params.get("home") or os.environ.get("FOREBAY_HOME") or ".forebay"
    catalog_file = Path(given).expanduser() / "catalog.db"
    if not catalog_file.is_file():
        return []  # completing a word must not make a home
    from forebay.catalog import Catalog

    with closing(Catalog(catalog_file)) as catalog:
        return [each.name for each in catalog.all(kind) if each.name.startswith(incomplete)]


def complete_at_the_first_tab() -> None:
    """typer's script for zsh only registers itself when zsh loads it, at the first Tab, which then does nothing.

    Its text is private to typer: where it is not found, a person presses Tab twice, as before.
    """
    with suppress(ImportError, AttributeError, KeyError):
        from typer import _completion_shared

        _completion_shared._completion_scripts["zsh"] += (
            '[[ $zsh_eval_context[-1] == loadautofunc ]] && %(complete_func)s "$@"\n'
        )

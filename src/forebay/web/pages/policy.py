"""NiceGUI's page has scripts in it. Under a content policy without inline script each of them needs the answer's nonce.

The nonce goes into the template, before any data is: what data has in it never becomes a script with a nonce.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from jinja2 import BaseLoader, Environment
from nicegui import client

_SCRIPT = re.compile(r"<script(?=[\s>])")
_WITH_NONCE = '<script nonce="{{ request.state.nonce }}"'


class _Nonces(BaseLoader):
    """Another loader's templates, with the nonce of the request on each script."""

    def __init__(self, loader: BaseLoader) -> None:
        self._loader = loader

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str | None, Callable[[], bool] | None]:
        source, name, current = self._loader.get_source(environment, template)
        return _SCRIPT.sub(_WITH_NONCE, source), name, current


def use_nonces() -> None:
    """From now on, scripts of NiceGUI's pages have `request.state.nonce`, which the middleware puts there."""
    environment = client.templates.env
    if environment.loader is not None and not isinstance(environment.loader, _Nonces):
        environment.loader = _Nonces(environment.loader)
        if environment.cache is not None:
            environment.cache.clear()

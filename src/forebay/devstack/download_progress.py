"""How a download shows itself: a bar on a terminal, two plain lines elsewhere, always on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn


def say(text: str) -> None:
    """One plain line on stderr."""
    Console(stderr=True).print(text, highlight=False, soft_wrap=True)


@contextmanager
def download_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of bytes there are so far."""
    console = Console(stderr=True)
    if not console.is_terminal:
        say(f"Downloading {title} ({total / 1e6:.0f} MB), once per user")
        yield lambda _done: None
        say(f"Downloaded {title}")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"Downloading {title}", total=total)
        # Ivy keeps a few small files of its own beside the artifacts.
        yield lambda done: progress.update(task, completed=min(done, total))

"""`--profile` of every command that takes brokers, registry or home from `forebay.toml`."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def _complete(incomplete: str) -> list[str]:
    from forebay import project

    return [name for name in project.profiles() if name.startswith(incomplete)]


_given: str | None = None


def given() -> str | None:
    """The profile that this command's line names; None for one of the environment's."""
    return _given


def _read(context: typer.Context, profile: str | None) -> None:
    from forebay import project

    global _given  # a process is one command
    source = context.get_parameter_source("profile")
    _given = profile if source is not None and source.name == "COMMANDLINE" else None
    project.offer(profile)


def profile_option(**more: Any) -> Any:
    return typer.Option(
        "--profile",
        envvar="FOREBAY_PROFILE",
        help="a profile of forebay.toml, in this folder or above it",
        show_default=False,
        autocompletion=_complete,
        **more,
    )


def add_profile(command: Any) -> None:
    """Let a command, or each of a group's, read the file before its other options look into the environment."""
    for each in getattr(command, "commands", {}).values():
        add_profile(each)
    if not hasattr(command, "commands"):
        command.params.append(_made())


def _made() -> Any:
    """The option as typer makes it. Eager options come before others, and `--help` before this one."""

    def bare(
        profile: Annotated[
            str | None, profile_option(is_eager=True, expose_value=False, callback=_read)
        ] = None,
    ) -> None: ...

    app = typer.Typer(add_completion=False)
    app.command()(bare)
    made: Any = typer.main.get_command(app)
    return next(each for each in made.params if each.name == "profile")

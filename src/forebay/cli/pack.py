"""`forebay pack`: what the workers of a cluster need, as one archive, or as an image."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.output import words
from forebay.cli.progress_bar import Waiting

MIB = 1 << 20


def pack(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="the archive; one that is there is replaced")
    ] = Path("forebay-env.tar.gz"),
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include", help="a package of this environment to pack as well; may be given several times"
        ),
    ] = None,
    dockerfile: Annotated[
        Path | None,
        typer.Option(
            "--dockerfile",
            help="write a Dockerfile beside the archive: an image for Kubernetes, with Spark and what is packed",
        ),
    ] = None,
) -> None:
    """Pack this environment for the workers of a Spark cluster: Forebay, its native part, the libraries that tasks use.

    The archive holds no interpreter: workers have a Python of the same version, on the same kind of machine. Hand it to
    Spark with --archive (docs/cluster.md).

    Examples: forebay pack · forebay run pipeline.sql --master spark://host:7077 --archive forebay-env.tar.gz ·
    forebay pack --dockerfile Dockerfile
    """
    from forebay.runtime import image, packing

    with Waiting("packing") as waiting:
        made = packing.pack(output, include or (), waiting, for_driver=dockerfile is not None)
    words.print(
        f"{made.path}: {len(made.packages)} packages, {made.files:,} files, {made.path.stat().st_size / MIB:.0f} MB "
        f"({made.unpacked / MIB:.0f} MB unpacked)",
        markup=False,
        highlight=False,
    )
    if dockerfile is not None:
        image.write_dockerfile(dockerfile, made.path)
        words.print(
            f"{dockerfile}: docker build -t forebay -f {dockerfile} {made.path.parent}",
            markup=False,
            highlight=False,
        )

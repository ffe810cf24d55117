"""An image for Kubernetes: Python, Java, Spark, and the archive of `forebay pack`. It runs executors, and the driver, too."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

from forebay.errors import ArchiveError
from forebay.files import write_whole

DOCKERFILE = r"""# An image for Forebay on Kubernetes, written by `forebay pack --dockerfile`.
#   docker build -t registry/forebay:1 -f @DOCKERFILE@ .
# It runs the executors of a Spark, and the driver: docker run registry/forebay:1 run pipeline.sql --master k8s://…
FROM python:@PYTHON@-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless tini procps \
    && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir pyspark==@SPARK@
ADD @ARCHIVE@ /opt/forebay/
ENV SPARK_HOME=/usr/local/lib/python@PYTHON@/site-packages/pyspark
RUN printf '%s\n' \
    '#!/bin/sh' \
    'set -eu' \
    'export PYTHONPATH="/opt/forebay:/opt/forebay/forebay/source/start${PYTHONPATH:+:$PYTHONPATH}"' \
    'if [ "${1:-}" != executor ]; then exec tini -- python3 -m forebay "$@"; fi' \
    'set --' \
    'number=0' \
    'while eval "option=\${SPARK_JAVA_OPT_$number-}" && [ -n "$option" ]; do set -- "$@" "$option"; number=$((number + 1)); done' \
    'exec tini -s -- java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \' \
    '    -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:$SPARK_HOME/jars/*" \' \
    '    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \' \
    '    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \' \
    '    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \' \
    '    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"' \
    > /opt/entrypoint.sh \
    && chmod 0755 /opt/entrypoint.sh \
    && useradd --uid 185 --create-home --home-dir /home/forebay forebay
USER 185
WORKDIR /home/forebay
ENTRYPOINT ["/opt/entrypoint.sh"]
"""


def write_dockerfile(into: Path, archive: Path) -> None:
    """For this Python and this Spark. The archive must lie in the folder that the image is built from."""
    made = DOCKERFILE
    for name, value in {
        "DOCKERFILE": into.name,
        "PYTHON": f"{sys.version_info.major}.{sys.version_info.minor}",
        "SPARK": pyspark.__version__,
        "ARCHIVE": archive.name,
    }.items():
        made = made.replace(f"@{name}@", value)
    try:
        write_whole(into, made.encode())
    except OSError as error:
        raise ArchiveError(
            f"{into} cannot be written: {error.strerror or error}",
            remedy="name another place: --dockerfile FILE",
        ) from None

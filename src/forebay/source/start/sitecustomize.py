"""What each Python process that Spark starts runs first: it takes PySpark from where it is installed, and a daemon
imports what its workers need, who do not complain when Spark hangs up.

Spark puts a zip of PySpark before everything else on the path, and Python keeps no compiled code for what is in
a zip: every process would compile PySpark anew, which takes a second of a core. The zip of an installed PySpark
lies inside the package, so that without the zip the same code is found, compiled already.

The workers in which Spark makes a source and plans are forked from daemons that Spark chooses by itself, unlike those
that read (`source/worker_daemon.py`). What a daemon has imported, none of them imports again.

Spark hangs up when it gives a task up or ends. A worker that still had something to say would print a traceback into
the terminal of somebody who knows why already.

The folder of this file is on the path of these processes only (`runtime/spark.py`).
"""

import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DAEMONS = ("pyspark.daemon", "forebay.source.worker_daemon")
PLANNING = ("pyspark.sql.worker.create_data_source", "pyspark.sql.worker.plan_data_source_read")


def _is_spare(entry: Path) -> bool:
    """Whether this is the zip of a PySpark whose package is on the path too."""
    package = entry.parent.parent.parent  # pyspark/python/lib/pyspark.zip
    return (
        entry.name == "pyspark.zip"
        and package.name == "pyspark"
        and (package / "__init__.py").is_file()
        and str(package.parent) in sys.path
    )


sys.path[:] = [entry for entry in sys.path if Path(entry) != HERE and not _is_spare(Path(entry))]

# Python runs one file of this name: if the interpreter has another, it is that one's turn.
_own = sys.modules.pop("sitecustomize", None)
try:
    import_module("sitecustomize")
except ImportError:
    if _own is not None:
        sys.modules["sitecustomize"] = _own

*_, _module, _work = ["", "", *sys.orig_argv]
if _module in DAEMONS:
    _print = traceback.print_exc

    def _print_unless_hung_up(*args: Any, **kwargs: Any) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
            _print(*args, **kwargs)

    traceback.print_exc = _print_unless_hung_up
if _module == "pyspark.daemon" and _work in PLANNING:
    with suppress(ImportError):  # then a worker says it, to whom it concerns
        for _name in (_work, "forebay.source.datasource", "forebay.kafka.connector"):
            import_module(_name)

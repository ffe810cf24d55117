"""How long commands take to start, as ratios to `python -c "import typer"` on the same machine in the same minute.

Each round times every command once, so that what else the machine does falls on all of them; a command's ratio is the
median over the rounds. Ends with 1 if a bound is exceeded.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BASE = ("-c", "import typer")
# With typer at 0.07 to 0.1 s, five times that is half a second.
BOUNDS = {
    "--version": 2.5,
    "--help": 4.5,
    "completion": 4.5,
    "show sources": 5.0,
    "show queries -o json": 5.0,
    "lag": 5.0,
    "dlq ls": 5.0,
    "topic --help": 6.0,
    "consume --help": 6.0,
    "run --help": 6.0,
}


def timed(arguments: tuple[str, ...], environment: dict[str, str], folder: Path) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=folder, capture_output=True, check=False
    )
    taken = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr.decode()}")
    return taken


def command(line: str) -> tuple[str, ...]:
    return ("-m", "forebay", *([] if line == "completion" else line.split()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    ratios: dict[str, list[float]] = {line: [] for line in BOUNDS}
    seconds: dict[str, list[float]] = {line: [] for line in BOUNDS}
    bases = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"FOREBAY_HOME": str(folder / "home"), "FOREBAY_STATE": str(folder / "state")}
        complete = environment | {
            "_FOREBAY_COMPLETE": "complete_bash",
            "COMP_WORDS": "forebay d",
            "COMP_CWORD": "1",
        }
        for each in range(rounds + 1):
            base = timed(BASE, environment, folder)
            for line in BOUNDS:
                taken = timed(command(line), complete if line == "completion" else environment, folder)
                if each:  # the first round compiles what it imports
                    ratios[line].append(taken / base)
                    seconds[line].append(taken)
            if each:
                bases.append(base)
    print(f'python -c "import typer": {statistics.median(bases):.3f} s, {rounds} rounds')
    slow = []
    for line, bound in BOUNDS.items():
        ratio = statistics.median(ratios[line])
        mark = "" if ratio <= bound else "  TOO SLOW"
        slow += [line] if mark else []
        print(
            f"  {line:<22} {ratio:5.2f} times ({statistics.median(seconds[line]):.3f} s), bound {bound:g}{mark}"
        )
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()

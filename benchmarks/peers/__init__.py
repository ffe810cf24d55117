"""The systems that are compared, a file each.

A peer's file has `PEER`, which says what to run it with, and `measure(task) -> Outcome`, which the runner
calls in a process of its own: `python -m benchmarks.peers.<file>` reads a `Task` as JSON from standard
input and prints an `Outcome` as one line of JSON. It reads `task.topic` to its end, consumes every typed
column, and times that alone: start-up is over and the warm-up topic read before the clock starts.
A new peer is a new file and its name in `throughput.PEERS`; one that is no Python program can be started
by `measure`.
"""

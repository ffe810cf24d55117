"""The systems that are compared, a file each.

A peer's file has `PEER`, which says what to run it with, and `measure(task) -> Outcome`, which the runner
calls in a process of its own: `python -m benchmarks.peers.<file>` reads a `Task` as JSON from standard
input and prints an `Outcome` as one line of JSON. It reads `task.topic` to its end, consumes every typed
column, and times that alone: start-up is over and the warm-up topic read before the clock starts.

The comparison's peers stay up instead and are asked case after case: `session.py` is their contract, and
`contest.PEERS` lists them. A new peer is a new file with a `Worker` and its name in that list; one that is no
Python program is started by its worker, as Flink is.
"""

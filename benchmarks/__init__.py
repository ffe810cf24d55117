"""Measurements behind the project's claims: one file a claim, peers beside it in the same run.

python -m benchmarks            all claims, written to benchmarks/RESULTS.md
python -m benchmarks --quick    a few minutes, to see that everything works; RESULTS.md stays as it is
python -m benchmarks.throughput --records 1000000 --rounds 5     one claim, printed only

A machine is never quiet and never the same twice, so what is claimed is a ratio: peers take turns in one
run, each round gives one ratio, and the ratios are shown with their spread.
"""

"""Measurements behind the project's claims: one file a claim, peers beside it in the same run.

python -m benchmarks            all claims, written to benchmarks/RESULTS.md and benchmarks/plots
python -m benchmarks --quick    a few minutes, to see that everything works; RESULTS.md stays as it is
python -m benchmarks --claims grid,steady     some claims; RESULTS.md stays as it is
python -m benchmarks.grid --only "json windows" --peers forebay,flink     some cases, some peers, printed only
python -m benchmarks.rows --records 2000000 --rounds 1 --peers forebay    all rows into a table
python -m benchmarks.views --seconds 15 --rounds 1 --peers forebay        ten views beside one

A machine is never quiet and never the same twice, so what is claimed is a ratio: peers take turns in one
run, each round gives one ratio, and the ratios are shown with their spread.
"""

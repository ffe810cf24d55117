"""SELECTs that are answered in this process, from the Delta tables, where the answer is the one that Spark would give.

`reading.py` takes a query apart and says why it is Spark's where it is (`NeedsSpark`); `run.py` does the steps with Arrow.
What is not plainly the same there and here is left to Spark: see docs/decisions/0019-answers-without-spark.md.
"""

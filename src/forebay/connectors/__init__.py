"""The seam between a system that records come from and the runtime that drives it under Spark."""

"""The Spark data source: drives any connector as micro-batches."""

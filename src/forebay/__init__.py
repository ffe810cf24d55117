"""Forebay: Kafka in front of Spark, in SQL."""

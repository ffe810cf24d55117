"""Trades through Kafka and Spark into one-minute bars."""

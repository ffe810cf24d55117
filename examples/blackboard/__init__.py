"""Agents that price and ship orders through a blackboard on Kafka."""

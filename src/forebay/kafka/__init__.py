"""Kafka: the options, the clients, the group's offsets, and the first source connector."""

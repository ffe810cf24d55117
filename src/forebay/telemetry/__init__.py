"""What machines read: how metrics are served, and how durations are counted for them."""

LOOPBACK = "127.0.0.1"
"""Metrics name topics, groups and views: nobody on the network reads them unless the user says so."""

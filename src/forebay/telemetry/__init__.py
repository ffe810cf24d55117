"""What machines are told: how metrics are served, and how durations are counted for them."""

"""Java: finding it, and starting it quickly."""

"""Sessions and the queries they run."""

"""The dashboard and the HTTP API behind it. Needs the extra `ui`; nothing else of the package imports this room but `cli/`."""

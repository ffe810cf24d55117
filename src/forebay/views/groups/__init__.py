"""Tables of groups: what a batch adds up is merged into a view whose cost follows the change, not the table.

`layout.py` says what a group is, `memory.py` holds the groups that can still change, `log.py` has every batch on the disk,
`fold.py` keeps the log short, and `group_table.py` is all that others use.
"""

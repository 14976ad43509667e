"""A first configuration from table files: what they hold, how they belong together, and a commented TOML about it.

What could be meant in two ways (the id, the label, what the label is) is never chosen here: the ways are named.
"""

"""Engines decide only where things run. The two sides of the wire are the same in all of them."""

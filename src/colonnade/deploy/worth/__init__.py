"""`colonnade worth` between organisations: after an alignment, before any training contract."""

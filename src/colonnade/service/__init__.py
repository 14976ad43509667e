"""One long-lived process per organisation: it takes part in any number of runs."""

"""The command line: one file per command, each a thin shell around what Python offers too."""

import logging

logging.getLogger("colonnade").addHandler(logging.NullHandler())  # commands print the warnings of a run themselves

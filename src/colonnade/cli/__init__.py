"""The command line: one file per command, each a thin shell around what Python offers too."""

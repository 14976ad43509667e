"""What a finished run looks like to people: words, tables, figures, one self-contained HTML page."""

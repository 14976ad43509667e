"""Scorecards: columns cut into bins, how each bin speaks for or against an event, and points to add up by hand."""

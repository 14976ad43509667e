"""Which rows the organisations share, found without showing each other the rest."""

"""The audit: a lower bound on epsilon beside the ledger, planted bugs it must see, attacks on what is not covered."""

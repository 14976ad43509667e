"""The gate between what a party computed and what leaves, and the ledger of all that left."""

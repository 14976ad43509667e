"""The gate between what a party computed and what it says, and the ledger of all it said."""

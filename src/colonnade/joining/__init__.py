"""Is a candidate worth joining? An estimate before any training: noisy labels go down, one score per row comes up."""

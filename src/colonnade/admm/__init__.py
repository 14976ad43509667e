"""The ADMM steps of the coordinator: prox (z), dual, heads, residuals, stopping."""

"""Which party contributed what: norms, noisy columns, silence, Shapley values; and retraining with some of them."""

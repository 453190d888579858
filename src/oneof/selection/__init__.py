"""Choice without truth: leave-one-out weights, the search of settings, the wider search on Optuna."""

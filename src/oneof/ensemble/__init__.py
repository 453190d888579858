"""Fit learners to a dataset and combine them into labels, a model and an estimate of accuracy: `pipeline.fit` is the whole path."""

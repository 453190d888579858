"""From a dataset to labels, a model and a claim of accuracy: `pipeline.fit` is the whole path."""

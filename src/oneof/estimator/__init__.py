"""scikit-learn's view of a run."""

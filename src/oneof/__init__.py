"""Learn classifiers from candidate labels."""

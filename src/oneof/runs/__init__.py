"""Fit a table into a run folder, and make labels, predictions and exports from it."""

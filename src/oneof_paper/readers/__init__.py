"""Readers of the files that the paper's data sets are published in: MAT, IDX, CIFAR's pickles, tagged text."""

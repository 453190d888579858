"""File formats, one each: columns (CSV, Parquet), arrays (npz), mat, idx, cifar."""

"""File formats, one each: columns (Parquet, Arrow, pandas), delimited (CSV), arrays (npz), mat, idx, cifar; source is what they give."""

"""Small examples of what the functions of oneof_paper do; pytest runs them as they stand."""


def example_of_read_idx() -> None:
    """
    >>> from pathlib import Path
    >>> from oneof_paper.readers.idx import read_idx
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "labels-idx1-ubyte"
    >>> _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    >>> read_idx(file)
    array([7, 2, 1], dtype=uint8)
    """


def example_of_read_mat() -> None:
    """
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from oneof_paper.readers.mat import read_mat
    >>> import tempfile, scipy.io
    >>> file = Path(tempfile.mkdtemp()) / "small.mat"
    >>> scipy.io.savemat(file, {"data": np.eye(3, 2), "partial_target": [[1, 0, 1], [1, 1, 0]], "target": [[1, 0, 1], [0, 1, 0]]})
    >>> read_mat(file)["candidates"].astype(int).tolist(), read_mat(file)["labels"]
    ([[1, 1], [0, 1], [1, 0]], array([0, 1, 0]))
    """


def example_of_loads() -> None:
    """
    >>> import pickle
    >>> from oneof_paper.readers.pickles import loads
    >>> loads(pickle.dumps({b"labels": [3, 1]}), "batch")
    {b'labels': [3, 1]}
    """


def example_of_content_sha256() -> None:
    """
    >>> from pathlib import Path
    >>> from oneof_paper.data.verify import content_sha256
    >>> import gzip, tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.gz.part"
    >>> _ = file.write_bytes(gzip.compress(b"abc"))
    >>> content_sha256(file, "a.gz")[:16]
    'ba7816bf8f01cfea'
    """


def example_of_mixture() -> None:
    """
    >>> from oneof_paper.synthetic import mixture
    >>> data = mixture(n=1000, d=2, c=3, separation=5.0, seed=1)
    >>> bool((data.posterior.argmax(1) == data.labels).mean() > 0.9), data.posterior.sum(1).round(9).min()
    (True, np.float64(1.0))
    """

"""Consensus labels of CIFAR-10N by crowd-kit, for `votes_cifar10n.py --rivals`; CROWDLAB's are made there, beside the networks it needs.

    pip install crowd-kit && python benchmarks/accuracy/votes_rivals.py --out rivals.npz

Who cast which vote cannot be told, so the three columns of labels stand for three people.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from oneof_paper.data.catalogue import data_folder
from oneof_paper.readers.cifar import read_cifar10n

RIVALS = {"rival-dawid-skene": "DawidSkene", "rival-glad": "GLAD", "rival-mmsr": "MMSR"}


def consensus(name: str, labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """The label [n] that a rival gives to each image, of three people's [n, 3]."""
    from crowdkit import aggregation  # type: ignore[import-not-found]

    n, people = labels.shape
    votes = DataFrame(
        {"task": np.repeat(np.arange(n), people), "worker": np.tile(np.arange(people), n), "label": labels.ravel()}
    )
    model = getattr(aggregation, RIVALS[name])(**({"random_state": 0} if name == "rival-mmsr" else {}))
    found: NDArray[np.intp] = model.fit_predict(votes).sort_index().to_numpy().astype(np.intp)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    folder = data_folder(None)
    assert folder is not None, "set ONEOF_DATA"
    people = read_cifar10n(folder / "cifar10n/CIFAR-10_human.pt")
    labels: dict[str, NDArray[np.intp]] = {}
    for name in RIVALS:
        start = time.perf_counter()
        labels[name] = consensus(name, people.labels)
        right = (labels[name] == people.truth).mean()
        print(f"{name}: {100 * right:.2f} % right, {time.perf_counter() - start:.0f} s", flush=True)
        np.savez_compressed(out, **labels)


if __name__ == "__main__":
    main()

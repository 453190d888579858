"""A method of one's own against those of the package: the same splits, the same search, paired tests."""

from collections.abc import Iterator, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np

from oneof.data.roles import Roles
from oneof.data.table import read_table
from oneof.methods import METHODS, Method
from oneof.runs.read_dataset import dataset_from_table
from oneof.storage.did_you_mean import did_you_mean
from oneof.storage.rows import Row, append, read
from oneof_paper.compute_rows import Cell, compute_rows, missing_cells, rules
from oneof_paper.data.catalogue import NAMED, Dataset, load
from oneof_paper.experiments import TABLES, TABULAR, System
from oneof_paper.paired_tests import holm, paired
from oneof_paper.tables import HEADS
from oneof_paper.typeset import typeset

KNOWN = {**TABLES[4].systems, **TABLES[2].systems}  # what a method may be compared with


def own_method(given: str) -> Method:
    """The method at FILE.py:NAME, or of a name of METHODS; a class is called without arguments."""
    file, _, name = given.rpartition(":")
    if not file:
        if given not in METHODS:
            known, hint = ", ".join(METHODS), did_you_mean(given, METHODS)
            raise ValueError(f"method must be FILE.py:NAME or one of {known}; got {given!r}.{hint}")
        return METHODS[given]()
    spec = spec_from_file_location(Path(file).stem, file)
    if not Path(file).is_file() or spec is None or spec.loader is None:
        raise ValueError(f"method must name a Python file before the colon; {file!r} is none.")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    found = found() if isinstance(found, type) and issubclass(found, Method) else found
    if not isinstance(found, Method):
        raise ValueError(f"method must name a oneof.Method in {file}; {name!r} is {type(found).__name__}.")
    return found


def opened(data: str, gold: str, data_dir: Path | None) -> Dataset:
    """A named set, or a table whose column `gold` has the true label of every row."""
    if data in NAMED:
        found = load(data, data_dir)
    else:
        examples, _ = dataset_from_table(read_table(Path(data), Roles(gold=gold)), Path(data).parent)
        truth, sets = np.asarray(examples.gold), examples.candidates
        found = Dataset(Path(data).name, examples.features, truth, sets.classes.tolist(), sets.mask, None)
    if found.candidates is None or (found.labels < 0).any():
        raise ValueError(
            f"data must have candidate sets and a true label in every row; {data} does not. Use lost, msrcv2, birdsong or a table."
        )
    return found


def compare(method: Method, data: Dataset, against: Sequence[str], seeds: Sequence[int], path: Path) -> Iterator[str]:
    """Train a method and its rivals on a set with candidates and true labels; the title of each as soon as its rows are written.

    All have the same splits (80/20), the same linear model and the same twelve settings, chosen by held-out sets. What `path` has is
    not run again: remove it after a change of the method's code.
    """
    for name in against:
        if name not in KNOWN:
            raise ValueError(f"against must be of {', '.join(KNOWN)}; got {name!r}.{did_you_mean(name, KNOWN)}")
    systems = [System(type(method).__name__, method), *(KNOWN[name] for name in against)]
    cells = [Cell(data.name, system, TABULAR, tuple(seeds)) for system in systems]
    for cell in missing_cells(cells, read(path) if path.exists() else []):
        append(path, compute_rows(cell, data))
        yield cell.system.title


def comparison(rows: Sequence[Row], dataset: str, ours: str, form: str) -> str:
    """Ours against each of the others in Markdown or LaTeX: means, paired differences over shared seeds, p corrected by Holm."""
    own = [row for row in rows if row.get("kind") == "chosen" and row["dataset"] == dataset]
    head = ["chosen by", "against", ours, "it", "gain", "p (t)", "p (Holm)", "p (Wilcoxon)", "seeds"]
    body, tests = [], []
    for rule in rules():
        scores: dict[str, dict[int, float]] = {}
        for row in own:
            if row["rule"] == rule:
                scores.setdefault(row["system"], {})[row["seed"]] = 100 * row["accuracy"]
        for other in sorted(scores.keys() - {ours}):
            seeds = sorted(scores[ours].keys() & scores[other].keys())
            pair = [[scores[one][seed] for seed in seeds] for one in (ours, other)]
            test = paired(*pair)
            means = [f"{sum(values) / len(values):.2f}" for values in pair]
            tests.append(test)
            body.append([HEADS[rule], other, *means, f"{test.gain:+.2f}"])
    corrected = holm([test.t_p for test in tests])
    for line, test, p in zip(body, tests, corrected, strict=True):
        line += [f"{test.t_p:.2g}", f"{p:.2g}", f"{test.wilcoxon_p:.2g}", str(test.n)]
    return typeset(head, body, form)

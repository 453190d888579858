"""Compare a method of one's own with those of the package: the same splits, the same search, paired tests."""

from collections.abc import Iterator, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np

from oneof.data.roles import ColumnRoles
from oneof.data.table import read_table
from oneof.methods import METHODS, Method
from oneof.runs.read_dataset import dataset_from_table
from oneof.storage.did_you_mean import did_you_mean
from oneof.storage.rows import Row, append, read
from oneof_paper.compute_rows import Cell, compute_rows, missing_cells, rules
from oneof_paper.data.catalogue import NAMED, LabelledData, load
from oneof_paper.experiments import TABLES, TABULAR, System
from oneof_paper.paired_tests import holm, paired
from oneof_paper.tables import HEADS
from oneof_paper.typeset import typeset

KNOWN = {**TABLES[4].systems, **TABLES[2].systems}  # systems to compare with


def own_method(text: str) -> Method:
    """Return the method at FILE.py:NAME, or of a name in METHODS; a class is called without arguments."""
    file, _, name = text.rpartition(":")
    if not file:
        if text not in METHODS:
            known = ", ".join(METHODS)
            hint = did_you_mean(text, METHODS)
            raise ValueError(f"method must be FILE.py:NAME or one of {known}; got {text!r}.{hint}")
        return METHODS[text]()
    spec = spec_from_file_location(Path(file).stem, file)
    if not Path(file).is_file() or spec is None or spec.loader is None:
        raise ValueError(f"method must name a Python file before the colon; {file!r} is none.")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    method = getattr(module, name, None)
    if isinstance(method, type) and issubclass(method, Method):
        method = method()
    if not isinstance(method, Method):
        raise ValueError(f"method must name a oneof.Method in {file}; {name!r} is {type(method).__name__}.")
    return method


def open_data(source: str, gold: str, data_dir: Path | None) -> LabelledData:
    """Return a named data set, or a table whose column `gold` has the true label of every row."""
    if source in NAMED:
        data = load(source, data_dir)
    else:
        path = Path(source)
        examples, _ = dataset_from_table(read_table(path, ColumnRoles(gold=gold)), path.parent)
        candidates = examples.candidates
        labels = np.asarray(examples.gold)
        data = LabelledData(path.name, examples.features, labels, candidates.classes.tolist(), candidates.mask, None)
    if data.candidates is None or (data.labels < 0).any():
        raise ValueError(
            f"data must have candidate sets and a true label in every row; {source} does not. Use lost, msrcv2, birdsong or a table."
        )
    return data


def compare(
    method: Method, data: LabelledData, against: Sequence[str], seeds: Sequence[int], path: Path
) -> Iterator[str]:
    """Train a method and its rivals on a data set with candidates and true labels, and append their rows to a file.

    All have the same splits (80/20), the same linear model and the same twelve settings, chosen by held-out sets. Systems that have rows
    in the file are not trained again: remove it after a change of the method's code.

    Parameters
    ----------
    method
        The method to compare.
    data
        The data set, with candidate sets and all true labels.
    against
        Names of the systems to compare with, such as pop, proden or cc+pop.
    seeds
        Seeds of the splits.
    path
        File of the rows.

    Yields
    ------
    str
        The title of each system when its rows are written.
    """
    for name in against:
        if name not in KNOWN:
            raise ValueError(f"against must be of {', '.join(KNOWN)}; got {name!r}.{did_you_mean(name, KNOWN)}")
    systems = [System(type(method).__name__, method), *(KNOWN[name] for name in against)]
    cells = [Cell(data.name, system, TABULAR, tuple(seeds)) for system in systems]
    rows = read(path) if path.exists() else []
    for cell in missing_cells(cells, rows):
        append(path, compute_rows(cell, data))
        yield cell.system.title


def comparison(rows: Sequence[Row], dataset: str, ours: str, form: str) -> str:
    """Return ours against each other system as a table: means, paired differences over shared seeds, p corrected by Holm."""
    lines = []
    tests = []
    for rule in rules():
        accuracies = _accuracies_by_system(rows, dataset, rule)
        for other in sorted(accuracies.keys() - {ours}):
            seeds = sorted(accuracies[ours].keys() & accuracies[other].keys())
            our_accuracies = [accuracies[ours][seed] for seed in seeds]
            other_accuracies = [accuracies[other][seed] for seed in seeds]
            test = paired(our_accuracies, other_accuracies)
            our_mean = sum(our_accuracies) / len(seeds)
            other_mean = sum(other_accuracies) / len(seeds)
            lines.append([HEADS[rule], other, f"{our_mean:.2f}", f"{other_mean:.2f}", f"{test.gain:+.2f}"])
            tests.append(test)
    corrected = holm([test.t_p for test in tests])
    for line, test, holm_p in zip(lines, tests, corrected, strict=True):
        line += [f"{test.t_p:.2g}", f"{holm_p:.2g}", f"{test.wilcoxon_p:.2g}", str(test.n)]
    head = ["chosen by", "against", ours, "it", "gain", "p (t)", "p (Holm)", "p (Wilcoxon)", "seeds"]
    return typeset(head, lines, form)


def _accuracies_by_system(rows: Sequence[Row], dataset: str, rule: str) -> dict[str, dict[int, float]]:
    """Return the accuracies in percent of the settings that a rule chose: system -> seed -> accuracy."""
    accuracies: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.get("kind") == "chosen" and row["dataset"] == dataset and row["rule"] == rule:
            accuracies.setdefault(row["system"], {})[row["seed"]] = 100 * row["accuracy"]
    return accuracies

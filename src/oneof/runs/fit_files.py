"""Fit many Parquet files that need not fit in memory: a sample of their rows is learned from, as large as a learning curve says.

Quick fits on more and more rows are scored by sets that they have not seen. Where twice as many rows no longer help, the ensemble is fitted on
that sample, as a table of its own. Where they still help at the largest sample, networks go on learning from all rows
(`oneof.runs.stream_networks`). `oneof.runs.clean_files` then labels every row, file by file.
"""

import glob
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from oneof.data.dataset import BoolArray
from oneof.data.files.batches import PARQUET, find_files
from oneof.data.files.columns import open_table, read_columns_of
from oneof.data.files.source import translate_arrow_errors
from oneof.data.roles import ColumnRoles
from oneof.data.table import read_columns, read_table
from oneof.ensemble.model import Model
from oneof.ensemble.pipeline import fit
from oneof.learners.base import Resources
from oneof.learners.config import FitConfig
from oneof.runs.file_sets import known_sets, supervision_columns
from oneof.runs.fit_spec import FILE_COLUMN, FILES, ROW_COLUMN, TABLE, FitSpec
from oneof.runs.fit_table import RunOptions, fit_table
from oneof.runs.folder import Run, write_json
from oneof.runs.read_dataset import dataset_from_table
from oneof.runs.stream_networks import NetworkStream
from oneof.storage.durations import format_duration
from oneof.storage.files import atomic_write
from oneof.storage.progress import progress_bar
from oneof.storage.settings import first_difference, to_serializable
from oneof.storage.strict_json import parse_json
from oneof.training.processes import current_group

N_EVAL = 10_000  # rows that score the quick fits
FIRST_SIZE = 2_500  # rows of the first quick fit; each next one has twice as many
MAX_SAMPLED_ROWS = 100_000  # of the files, unless the user says how many
MIN_GAIN = 0.002  # of the share of held-out sets that contain the prediction: a smaller one ends the curve
BYTES_PER_CELL = 40  # that a fit takes for each row and column, about
# Of a default fit of 20 columns on one core: 30,000 rows take 41 to 57 s (results/large_tables.jsonl).
SECONDS_PER_ROW = 0.0015


class CurvePoint(NamedTuple):
    """How well a quick fit predicts rows that it has not seen."""

    rows: int  # that were learned from
    covering: float  # share of held-out sets that contain the prediction
    seconds: float


@dataclass(frozen=True)
class Sample:
    """Rows to learn from, and the learning curve by which there are so many."""

    table: pa.Table
    curve: list[CurvePoint] = field(default_factory=list)
    more_helps: bool = False  # whether the curve still rose where it ended


def table_files(path: Path | None) -> list[Path]:
    """Return the Parquet files that a pattern such as 'folder/*.parquet', or a folder of nothing else, stands for; none for other paths."""
    if path is None or path.is_file():
        return []
    if path.is_dir():
        entries = []
        for entry in sorted(path.iterdir()):
            if entry.name.startswith((".", "_")):
                continue
            if not entry.is_file() or entry.suffix.lower() not in PARQUET:
                return []
            entries.append(entry)
        return entries
    if not glob.has_magic(str(path)):
        return []
    files = find_files([str(path)])
    for file in files:
        if file.suffix.lower() not in PARQUET:
            raise ValueError(f"several files to learn from must be Parquet; {path} matches {file}. Convert it first.")
    return files


def fit_files(
    files: Sequence[Path],
    out: Path,
    spec: FitSpec = FitSpec(),  # noqa: B008 - frozen
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    n_sample: int | None = None,
) -> Run:
    """Learn from a sample of the rows of Parquet files, and write the run folder `out`.

    A run that was stopped there is resumed; a finished one is opened.

    Parameters
    ----------
    files
        Parquet files with the same columns.
    n_sample
        Number of rows to learn from. None: as many as a learning curve shows to help.
    """
    _check_spec(spec)
    group = current_group(options.resources.n_jobs)
    described = group.run_on_rank0(partial(_prepare_sample, files, out, spec, options, n_sample))
    ignore = (*spec.roles.ignore, FILE_COLUMN, ROW_COLUMN)
    sample_spec = replace(spec, roles=replace(spec.roles, ignore=ignore))
    refine = None
    if described["more_helps"]:
        state = out / "checkpoint" / "networks.safetensors"
        refine = NetworkStream(files, spec.roles, state, options.progress)
    return fit_table(out / TABLE, out, sample_spec, replace(options, files=described, refine=refine))


def _check_spec(spec: FitSpec) -> None:
    """Refuse what needs all rows in memory."""
    if spec.votes is not None:
        raise ValueError(
            "--votes needs one table of items; got several files. Make sets of the votes first: oneof votes --stream."
        )
    if spec.roles.image:
        raise ValueError("--image needs one table of pictures; got several files.")


def _prepare_sample(
    files: Sequence[Path], out: Path, spec: FitSpec, options: RunOptions, n_sample: int | None
) -> dict[str, Any]:
    """Draw the rows to learn from, unless that was done before; return what run.json says about the files."""
    request = _describe_request(files, spec, n_sample)
    plan_file = out / FILES
    if plan_file.exists():
        plan: dict[str, Any] = parse_json(plan_file.read_bytes())
        difference = first_difference(plan.get("request", {}), request)
        if difference:
            raise ValueError(
                f"{out} holds a run of other files or settings: {difference}. Give another folder, or delete this one."
            )
        return dict(plan["files"])
    if out.exists() and (not out.is_dir() or any(path.name != TABLE for path in out.iterdir())):
        raise ValueError(f"out must be a new or empty folder; {out} holds something else. Give another one.")
    n_rows = _count_rows(files)
    limit = _largest_sample(files[0], n_rows, n_sample, options.resources)
    _announce(files, n_rows, limit, n_sample, options)
    pool = _draw_rows(files, n_rows, limit, spec.config.seed, options)
    sample = Sample(pool)
    if n_sample is None and limit < sum(n_rows):
        sample = _choose_sample(pool, spec, options)
    described = {
        "paths": [str(file.resolve()) for file in files],
        "rows": sum(n_rows),
        "sampled": sample.table.num_rows,
        "curve": [point._asdict() for point in sample.curve],
        "more_helps": sample.more_helps,
    }
    out.mkdir(parents=True, exist_ok=True)
    with atomic_write(out / TABLE) as file:
        pq.write_table(sample.table, file)
    write_json({"request": request, "files": described}, plan_file)
    share = sample.table.num_rows / sum(n_rows)
    options.echo(
        f"the ensemble is fitted on {sample.table.num_rows:,} rows, {share:.1%} of all: "
        f"about {format_duration(SECONDS_PER_ROW * sample.table.num_rows)} with 20 columns on one core."
    )
    return described


def _describe_request(files: Sequence[Path], spec: FitSpec, n_sample: int | None) -> dict[str, Any]:
    """Return what determines the sample, as JSON: the files as they are now, and the settings."""
    described: dict[str, Any] = {"sample": n_sample, **to_serializable(spec)}
    for file in files:
        status = file.stat()
        described[str(file.resolve())] = [status.st_size, status.st_mtime_ns]
    return dict(json.loads(json.dumps(described)))


def _count_rows(files: Sequence[Path]) -> list[int]:
    """Return the rows of each file; raise if the files do not have the same columns."""
    counts = []
    first: pa.Schema | None = None
    for file in files:
        with translate_arrow_errors(str(file)), pq.ParquetFile(file) as opened:
            schema = opened.schema_arrow.remove_metadata()
            counts.append(opened.metadata.num_rows)
        if first is None:
            first = schema
        elif not schema.equals(first):
            raise ValueError(
                f"all files must have the columns of {files[0]}; {_schema_difference(file, schema, first)}"
            )
    if not sum(counts):
        raise ValueError(f"the files must have at least one row; {files[0]} and the others have none.")
    return counts


def _schema_difference(file: Path, schema: pa.Schema, first: pa.Schema) -> str:
    """Say in what the columns of a file differ from those of the first."""
    for name in first.names:
        if name not in schema.names:
            return f"{file} has no column {name!r}. Add it, or leave the file out."
        if schema.field(name).type != first.field(name).type:
            return f"{file}, column {name!r} is {schema.field(name).type}, not {first.field(name).type}. Convert it."
    for name in schema.names:
        if name not in first.names:
            return f"{file} has a column {name!r} that the first has not. Remove it, or leave the file out."
    return f"{file} has them in another order. Write them in the same one."


def _largest_sample(file: Path, n_rows: Sequence[int], n_sample: int | None, resources: Resources) -> int:
    """Return how many rows may be drawn: as many as the user requests, or as memory and time allow."""
    if n_sample is not None:
        return min(n_sample, sum(n_rows))
    width = len(pq.read_schema(file).names)
    budget = resources.memory or 2**30
    in_memory = budget // (BYTES_PER_CELL * width)
    return min(max(in_memory, FIRST_SIZE), MAX_SAMPLED_ROWS, sum(n_rows))


def _announce(
    files: Sequence[Path], n_rows: Sequence[int], limit: int, n_sample: int | None, options: RunOptions
) -> None:
    """Say what will be done, and how long it takes."""
    size = sum(file.stat().st_size for file in files) / 1e9
    longest = format_duration(2 * SECONDS_PER_ROW * limit)
    begin = f"{len(files):,} files, {sum(n_rows):,} rows, {size:.2g} GB:"
    if limit == sum(n_rows):
        options.echo(f"{begin} all rows are learned from; about {format_duration(SECONDS_PER_ROW * limit)}.")
    elif n_sample is not None:
        options.echo(f"{begin} {limit:,} rows are drawn and learned from; at most about {longest}.")
    else:
        options.echo(
            f"{begin} rows are drawn to learn from, {FIRST_SIZE:,} at first and twice as many each time until sets of other rows show "
            f"that more do not help, {limit:,} at most. The files are read once; learning takes at most about {longest}."
        )


def _draw_rows(files: Sequence[Path], n_rows: Sequence[int], size: int, seed: int, options: RunOptions) -> pa.Table:
    """Return so many rows of all files, drawn at random and in random order, with the place that each has."""
    rng = np.random.default_rng(seed)
    total = sum(n_rows)
    chosen = np.sort(rng.choice(total, size, replace=False, shuffle=False))
    starts = np.concatenate([[0], np.cumsum(n_rows)])
    parts = []
    with progress_bar("read", total, options.progress, unit="rows") as step:
        for number, file in enumerate(files):
            first, end = np.searchsorted(chosen, starts[number : number + 2])
            part = _take_rows(file, chosen[first:end] - starts[number])
            part = part.append_column(FILE_COLUMN, pa.array(np.full(end - first, number, dtype=np.int32)))
            part = part.append_column(ROW_COLUMN, pa.array(chosen[first:end] - starts[number]))
            parts.append(part)
            step(steps=n_rows[number])
    return pa.concat_tables(parts).take(pa.array(rng.permutation(size)))


def _take_rows(file: Path, rows: NDArray[np.int64]) -> pa.Table:
    """Return rows of a file, given in order; one group of rows is in memory at a time."""
    with translate_arrow_errors(str(file)), pq.ParquetFile(file, pre_buffer=False) as opened:
        schema = opened.schema_arrow.remove_metadata()
        tables = [schema.empty_table()]
        start = 0
        for number in range(opened.num_row_groups):
            end = start + opened.metadata.row_group(number).num_rows
            inside = rows[(rows >= start) & (rows < end)] - start
            if len(inside):
                tables.append(_take_from_group(opened, number, inside).cast(schema))
            start = end
    return pa.concat_tables(tables)


def _take_from_group(opened: pq.ParquetFile, number: int, rows: NDArray[np.int64]) -> pa.Table:
    """Return rows of a group of rows, which is read in batches."""
    parts = []
    start = 0
    for batch in opened.iter_batches(1 << 16, row_groups=[number], use_threads=False):
        inside = rows[(rows >= start) & (rows < start + batch.num_rows)] - start
        parts.append(pa.Table.from_batches([batch.take(pa.array(inside))]))
        start += batch.num_rows
    return pa.concat_tables(parts)


def _choose_sample(pool: pa.Table, spec: FitSpec, options: RunOptions) -> Sample:
    """Return as many rows as help: quick fits on more and more rows are scored by the sets of rows that they have not seen."""
    n_eval = min(N_EVAL, pool.num_rows // 5)
    held_out = pool.slice(0, n_eval)
    curve: list[CurvePoint] = []
    before: BoolArray | None = None
    more_helps = False
    size = min(FIRST_SIZE, pool.num_rows - n_eval)
    while True:
        begin = time.monotonic()
        model = _quick_fit(pool.slice(n_eval, size), spec, options.resources)
        covered = _is_covered(model, held_out, spec.roles)
        curve.append(CurvePoint(size, round(float(covered.mean()), 4), round(time.monotonic() - begin, 1)))
        options.echo(_describe_point(curve, n_eval))
        if before is not None and not _helps(covered, before):
            break
        if size == pool.num_rows - n_eval:
            options.echo(
                f"more than {pool.num_rows:,} rows might still help: networks continue to learn from all rows; --sample draws more."
            )
            more_helps = True
            break
        before = covered
        size = min(2 * size, pool.num_rows - n_eval)
    return Sample(pool.slice(0, n_eval + size), curve, more_helps)


def _describe_point(curve: Sequence[CurvePoint], n_eval: int) -> str:
    """Say what the last quick fit showed."""
    point = curve[-1]
    line = f"learned from {point.rows:,} rows in {point.seconds:.0f} s: the prediction lies in {point.covering:.1%} of {n_eval:,} sets"
    if len(curve) > 1:
        line += f", {100 * (point.covering - curve[-2].covering):+.1f} points"
    return f"{line}."


def _helps(covered: BoolArray, before: BoolArray) -> bool:
    """Return whether more held-out sets [m] are covered than before, by MIN_GAIN and by more than chance explains."""
    difference = covered.astype(np.float64) - before
    standard_error = difference.std() / np.sqrt(len(difference))
    return bool(difference.mean() >= max(MIN_GAIN, standard_error))


def _quick_fit(rows: pa.Table, spec: FitSpec, resources: Resources) -> Model:
    """Return a model of a first answer: the kernel and trees, without networks."""
    roles = replace(spec.roles, ignore=(*spec.roles.ignore, FILE_COLUMN, ROW_COLUMN))
    data, _ = dataset_from_table(read_table(rows, roles), Path())
    config = FitConfig(spec.config.ensemble.without_networks(), seed=spec.config.seed)
    return fit(data, config, Resources(device=resources.device, n_jobs=1, memory=resources.memory)).model


def _is_covered(model: Model, rows: pa.Table, roles: ColumnRoles) -> BoolArray:
    """Return for each row with a set, [m], whether the label that the model predicts lies in it."""
    encoding = model.encoding
    names = supervision_columns(roles)
    cells = read_columns_of(rows, names, [])
    sets = known_sets("the sample", cells, roles, rows.num_rows, model.classes)
    is_informative: BoolArray = np.logical_not(sets.all(axis=1))
    features = encoding.transform(read_columns(open_table(rows), encoding.roles))
    label = model.probabilities(features).argmax(1)
    covered = sets[np.arange(len(sets)), label]
    return np.asarray(covered[is_informative])

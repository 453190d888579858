"""Predict batches of rows by a run: in a loop, in the workers of Ray or Spark, or over the files of `oneof predict`."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from oneof.data.encode import Unseen, describe_unseen
from oneof.data.files.columns import check_not_taken, open_table
from oneof.data.files.hugging_face import is_dataset
from oneof.data.files.source import TableSource
from oneof.data.table import read_columns
from oneof.ensemble.model import Model
from oneof.runs.folder import Run
from oneof.runs.hugging_face import as_dataset
from oneof.runs.predict import prediction_table

_log = logging.getLogger(__name__)
_MAX_CELLS = 2**22  # features and probabilities of a batch, of which there are several copies in double precision
_MAX_ROWS = 2**16
_MIN_ROWS = 2**8


class BatchPredictions(NamedTuple):
    """Predictions for a batch of rows, and what to warn about."""

    table: pa.Table
    unseen: Unseen  # categories not seen in training
    fault: str  # about pictures that cannot be read; "" if there is none


@dataclass(frozen=True)
class Predictor:
    """Predict batches of rows by a run that `oneof fit` wrote.

    A predictor is called with a batch and keeps nothing of it. It is pickled as the path of the run and its options, and reads the
    model when it is first used: hand it to worker processes, the actors of Ray or the partitions of Spark.

    Parameters
    ----------
    run : str or Path
        Folder that `oneof fit` wrote. Workers on other machines must find it under the same path.
    columns : sequence of str
        Columns of a batch to copy to the result, such as an id.
    distribution : bool
        Add a column `p(LABEL)` for every class.
    accuracy : float, optional
        Abstain on the least certain rows so that this share of the remaining predictions is right: they have no label, and
        `abstained` is true.
    sets : float, optional
        Add a column `set` of labels that contains the right one in this share of rows.
    embedding_models : sequence of str
        Models of texts or pictures that the run was fitted with by name, and that may be opened.
    folder : str or Path
        Folder that the names of picture files are relative to.
    cache : Path, optional
        Folder of stored embeddings. None: the user's cache.

    Examples
    --------
    >>> predictor = Predictor("RUN", columns=["id"])  # doctest: +SKIP
    >>> predictor(pd.read_parquet("new.parquet"))  # doctest: +SKIP
         label  probability   id
    0      cat     0.931842  a17
    """

    run: str | Path
    columns: Sequence[str] = ()
    distribution: bool = False
    accuracy: float | None = None
    sets: float | None = None
    embedding_models: Sequence[str] = ()
    folder: str | Path = ""
    cache: Path | None = None
    _warned: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the path absolute, since a worker may have another current folder."""
        object.__setattr__(self, "run", Path(self.run).resolve())

    def __getstate__(self) -> dict[str, Any]:
        """Return path and options; the model is read again by whoever unpickles them."""
        return {name: value for name, value in self.__dict__.items() if name != "model"}

    @cached_property
    def model(self) -> Model:
        """Return the ensemble of the run, read on first use."""
        model = Run.open(self.run).model
        model.check_predicts()
        return model

    @property
    def classes(self) -> list[str]:
        """Return the labels."""
        return list(self.model.classes)

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the predictions, without copied columns."""
        none = np.zeros((0, len(self.model.classes)), dtype=np.float32)
        return self._prediction_table(none).schema

    @property
    def batch_size(self) -> int:
        """Return how many rows to predict at a time, so that a batch takes some hundred megabytes at most."""
        return batch_size(self.model)

    def __call__(self, batch: Any) -> Any:
        """Return the predictions for a batch, in the form that the batch has.

        Parameters
        ----------
        batch
            An Arrow table or record batch; a frame of pandas; a dataset of Hugging Face; a dict of NumPy arrays [n] by column; or a NumPy array [n, d] of the
            columns that the run was fitted to, if all of them are numbers.

        Returns
        -------
        pyarrow.Table, pandas.DataFrame, datasets.Dataset or dict of arrays
            `label` and `probability` of every row, what the options add, and the copied columns.
        """
        if isinstance(batch, np.ndarray):
            return _arrays(self._predict(open_table(self._with_names(batch))))
        if isinstance(batch, Mapping):
            columns = {name: pa.array(values) for name, values in batch.items()}
            return _arrays(self._predict(open_table(pa.table(columns))))
        predicted = self._predict(open_table(batch))
        if hasattr(batch, "iloc"):
            frame = predicted.to_pandas()
            frame.index = batch.index
            return frame
        if is_dataset(batch):
            return as_dataset(predicted)
        return predicted

    def map_batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the predictions for each batch: the function that Spark's `mapInPandas` and `mapInArrow` take."""
        for batch in batches:
            yield self(batch)

    def predict_source(self, source: TableSource, folder: Path) -> BatchPredictions:
        """Return the predictions for the rows of a source, without copied columns, and what to warn about.

        The names of picture files are relative to `folder`.
        """
        model = self.model
        encoding = model.encoding
        columns = read_columns(source, encoding.roles)
        unseen = encoding.unseen_values(columns)
        rows = encoding.encode(columns, folder=folder, cache=self.cache, trusted_models=list(self.embedding_models))
        table = self._prediction_table(model.probabilities(rows.features))
        if rows.fault:
            table = table.take(pa.array(range(len(columns)), mask=~rows.readable))
        return BatchPredictions(table, unseen, rows.fault or "")

    def _predict(self, source: TableSource) -> pa.Table:
        """Return the predictions for a batch with the copied columns; log what to warn about, each line once."""
        predictions = self.predict_source(source, Path(self.folder))
        warnings = describe_unseen(predictions.unseen)
        if predictions.fault:
            warnings.append(predictions.fault)
        for warning in warnings:
            if warning not in self._warned:
                _log.warning(warning)
                self._warned.add(warning)
        return append_columns(predictions.table, source, self.columns)

    def _prediction_table(self, probabilities: Any) -> pa.Table:
        """Return the table of predictions for probabilities [n, c]."""
        return prediction_table(
            probabilities,
            self.model.classes,
            self.model.calibration,
            distribution=self.distribution,
            accuracy=self.accuracy,
            sets=self.sets,
        )

    def _with_names(self, x: Any) -> pa.Table:
        """Return an array [n, d] as a table with the columns that the run was fitted to."""
        roles = self.model.encoding.roles
        names = roles.features
        if roles.non_numeric:
            raise ValueError(
                f"batch must have named columns: the run was fitted to {', '.join(roles.non_numeric)}, which are not numbers; "
                "got an array. Give a frame, an Arrow table or a dict of arrays."
            )
        if x.ndim != 2 or x.shape[1] != len(names):
            raise ValueError(
                f"batch must be an array [n, {len(names)}] of the columns that the run was fitted to; got {list(x.shape)}."
            )
        return pa.table(dict(zip(names, x.T, strict=True)))


def batch_size(model: Model) -> int:
    """Return how many rows to predict at a time, so that a batch takes some hundred megabytes at most."""
    width = len(model.encoding.names) + len(model.classes)
    return int(np.clip(_MAX_CELLS // width, _MIN_ROWS, _MAX_ROWS))


def append_columns(table: pa.Table, source: TableSource, names: Sequence[str]) -> pa.Table:
    """Return predictions with columns of the source copied to them."""
    for name in names:
        check_not_taken(name, table.column_names)
        chunks = [values for _, _, values in source.chunks([], [name])]
        column = pa.chunked_array(chunks)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        table = table.append_column(name, column)
    return table


def _arrays(table: pa.Table) -> dict[str, Any]:
    """Return the columns of a table as NumPy arrays."""
    return {name: table[name].to_numpy() for name in table.column_names}

"""Count votes and run Dawid-Skene on more votes than memory holds.

Votes are read once, in batches, and dealt to parts by a hash of their item, so that all votes on an item lie in one part, on the disk.
A part is an ordinary `Votes`, whose annotators and labels are those of all parts. What concerns single items (policies, counts) is
computed part by part; what concerns all of them (agreement, the steps of EM) is a sum over parts. Memory holds one part and the
tables of annotators.

Only the model of Dawid and Skene can be streamed. Models that choose their settings by held-out votes or learn from features
(`oneof.votes.fit_annotators`, `oneof.votes.join`) need all votes in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array

from oneof.data.files.batches import count_rows, read_batches
from oneof.data.files.source import translate_arrow_errors
from oneof.storage.memory import available_memory
from oneof.storage.progress import progress_bar
from oneof.storage.sheets import SheetWriter
from oneof.votes.agreement import AnnotatorAgreement, agreement_of_counts, compare_with_others, single_label_answers
from oneof.votes.ballots import (
    Floats,
    Integers,
    Votes,
    count_uneven_answers,
    frequency_in_answer,
    merge_duplicates,
    remark_on_uneven_answers,
    tally,
)
from oneof.votes.policies import Sets, at_least, to_table, top_p_set, union, vaguest

_ENDINGS = (".csv", ".tsv", ".parquet", ".pq")  # of files that can be read in batches, perhaps with .gz
VOTES_PER_PART = 4_000_000
_ROWS_PER_BATCH = 1 << 20
_BYTES_PER_ROW = 16  # of a CSV, to guess its number of rows
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: multiplying by it spreads consecutive numbers
_OFFSET_BASIS = np.uint64(14695981039346656037)  # of the hash FNV-1a, and its prime
_PRIME = np.uint64(1099511628211)
POLICIES = ("union", "at-least", "vaguest", "dawid-skene")


class PartFiles(NamedTuple):
    """Files of a part."""

    votes: Path  # as dealt: Arrow record batches
    matrix: Path  # item, pair and weight of every vote, for EM
    posterior: Path  # [n, c] float32, of the last round


@dataclass(frozen=True)
class PartitionedVotes:
    """Votes on the disk, in parts that hold all votes on their items."""

    folder: Path
    annotators: list[str]
    labels: list[str]  # [c], sorted
    label_rank: Integers  # [c] place of each label among the sorted ones; files have them in order of first appearance
    n_parts: int

    def files(self, part: int) -> PartFiles:
        """Return the files of a part."""
        return PartFiles(
            self.folder / f"{part}.arrow", self.folder / f"{part}.npz", self.folder / f"{part}.posterior.npy"
        )

    def __iter__(self) -> Iterator[Votes]:
        """Yield the parts, one of which is in memory at a time."""
        for part in range(self.n_parts):
            yield self.read(part)

    def read(self, part: int) -> Votes:
        """Return the votes of a part, sorted, without duplicates; items are in order of first appearance."""
        with pa.memory_map(str(self.files(part).votes)) as file, pa.ipc.open_stream(file) as reader:
            table = reader.read_all()
            encoded = pc.dictionary_encode(table["item"].combine_chunks())
            item = encoded.indices.to_numpy().astype(np.intp)
            annotator = table["annotator"].to_numpy().astype(np.intp)
            label = self.label_rank[table["label"].to_numpy()]
            confidence = None
            if "confidence" in table.column_names:
                confidence = table["confidence"].to_numpy().astype(np.float64)
            items = pa.concat_arrays([encoded.dictionary])  # a copy: the file is closed
        merged = merge_duplicates(item, annotator, label)
        if confidence is not None:
            confidence = merged.highest(confidence)
        first = merged.first
        item = item[first]
        annotator = annotator[first]
        return Votes(
            items=items,
            annotators=self.annotators,
            labels=self.labels,
            item=item,
            annotator=annotator,
            label=label[first],
            confidence=confidence,
            frequency=frequency_in_answer(item, annotator, merged.counts),
            repeated=merged.n_repeated,
        )


def partition_votes(
    files: Sequence[Path],
    folder: Path,
    *,
    item: str = "item",
    annotator: str = "annotator",
    label: str = "label",
    confidence: str | None = None,
    votes_per_part: int = VOTES_PER_PART,
    show: bool = False,
) -> PartitionedVotes:
    """Deal the votes of files to parts on the disk.

    Parameters
    ----------
    files
        Parquet, CSV or TSV files with a row per vote. Labels are taken as they are written; an empty one is no vote.
    folder
        New folder for the parts, about 20 bytes a vote; the caller removes it.
    item, annotator, label, confidence
        Columns of the files.
    votes_per_part
        Votes that a part has, about: they are in memory at a time.
    show
        Show progress.
    """
    for file in files:
        if not file.name.lower().removesuffix(".gz").endswith(_ENDINGS):
            supported = ", ".join(_ENDINGS)
            raise ValueError(
                f"votes to stream must be in files that end in one of {supported}; got {file}. "
                "Leave out --stream, or convert the file to Parquet."
            )
    folder.mkdir(parents=True)
    names = [item, annotator, label]
    if confidence is not None:
        names.append(confidence)
    n_rows = sum(_guess_rows(file) for file in files)
    n_parts = max(1, -(-n_rows // votes_per_part))
    annotators = _Codes()
    labels = _Codes()
    with ExitStack() as stack, progress_bar("read votes", n_rows, show, unit="rows") as step:
        writer = _PartWriter(folder, n_parts, stack)
        for file in files:
            for batch in read_batches(file, [], names, _ROWS_PER_BATCH):
                columns = {name: _column(batch, name) for name in names}
                writer.write(_encode(columns, names, annotators, labels, file, batch.first_row))
                step(steps=batch.rows)
        if not writer.streams:
            raise ValueError(f"votes must hold at least one label; {', '.join(map(str, files[:3]))} has none.")
    parts = sorted(writer.streams)
    for new, part in enumerate(parts):  # a hash may leave parts without votes
        (folder / f"{part}.arrow").rename(folder / f"{new}.arrow")
    order = np.argsort(np.asarray(labels.names, dtype=object), kind="stable")
    sorted_names = [labels.names[j] for j in order]
    return PartitionedVotes(folder, annotators.names, sorted_names, np.argsort(order), len(parts))


class _PartWriter:
    """Write votes to a file per part, which is made with the first vote."""

    def __init__(self, folder: Path, n_parts: int, stack: ExitStack) -> None:
        self.folder = folder
        self.n_parts = n_parts
        self.streams: dict[int, Any] = {}  # by part
        self._stack = stack  # closes the files

    def write(self, votes: pa.Table) -> None:
        """Write each vote to the part of its item."""
        for part, dealt in _deal(votes, self.n_parts):
            if part not in self.streams:
                sink = self._stack.enter_context(pa.OSFile(str(self.folder / f"{part}.arrow"), "wb"))
                self.streams[part] = self._stack.enter_context(pa.ipc.new_stream(sink, votes.schema))
            self.streams[part].write_table(dealt)


class _Codes:
    """Numbers texts in order of first appearance."""

    def __init__(self) -> None:
        self.code_of: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return list(self.code_of)

    def encode(self, texts: pa.Array) -> NDArray[np.int32]:
        """Return the number of each text."""
        encoded = pc.dictionary_encode(texts)
        codes = []
        for text in encoded.dictionary.to_pylist():
            codes.append(self.code_of.setdefault(text, len(self.code_of)))
        return np.asarray(np.asarray(codes, dtype=np.int32)[encoded.indices.to_numpy()])


def _guess_rows(file: Path) -> int:
    """Return the number of rows of a file, for Parquet exactly."""
    rows = count_rows(file)
    if rows is None:
        return file.stat().st_size // _BYTES_PER_ROW + 1
    return rows


def _column(batch: Any, name: str) -> pa.Array:
    """Return a column of a batch as one array; dictionaries become their values."""
    column = pa.chunked_array([values for _, _, values in batch.chunks([], [name])])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return pa.concat_arrays(column.chunks)


def _encode(
    columns: dict[str, pa.Array], names: list[str], annotators: _Codes, labels: _Codes, file: Path, first_row: int
) -> pa.Table:
    """Return the votes of a batch with annotators and labels as numbers; rows of an empty label are left out."""
    item, annotator, label, *confidence = [columns[name] for name in names]
    for name, column in zip(names, (item, annotator, label, *confidence), strict=True):
        row = pc.index(pc.is_null(column, nan_is_null=True), True).as_py()
        if row >= 0 and column is not label:  # a row without a label is no vote
            raise ValueError(
                f"column {name!r} must hold a value in every row; {file} has none in row {first_row + row}. Fill or drop it."
            )
        if pa.types.is_nested(column.type):
            raise TypeError(
                f"column {name!r} must hold one text or number in a row with --stream; {file} has {column.type}. "
                "Leave out --stream, or flatten the column."
            )
    with translate_arrow_errors(str(file)):
        label = pc.if_else(pc.is_null(label, nan_is_null=True), "", pc.cast(label, pa.string()))
        annotator = pc.utf8_trim_whitespace(pc.cast(annotator, pa.string()))
    is_vote = pc.not_equal(label, "")
    vote_rows = pc.indices_nonzero(is_vote)
    encoded = {
        "item": item.take(vote_rows),
        "annotator": annotators.encode(annotator.take(vote_rows)),
        "label": labels.encode(label.take(vote_rows)),
    }
    if confidence:
        encoded["confidence"] = _confidences(confidence[0].take(vote_rows), names[3], file, first_row)
    return pa.table(encoded)


def _confidences(column: pa.Array, name: str, file: Path, first_row: int) -> pa.Array:
    """Return confidences of a batch as numbers; raise ValueError if one is no number in [0, 1]."""
    message = f"column {name!r} must hold confidences from 0 to 1; {file}, from row {first_row} on, has others. Correct the file."
    try:
        weights = pc.cast(column, pa.float64())
    except pa.ArrowException as error:
        raise ValueError(message) from error
    low, high = pc.min_max(weights).as_py().values()
    if low is not None and not 0 <= low <= high <= 1:
        raise ValueError(message)
    return weights


def _deal(votes: pa.Table, n_parts: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the votes of a batch by part."""
    if not votes.num_rows:
        return
    part = (_hash(votes["item"].combine_chunks()) % np.uint64(n_parts)).astype(np.int32)
    order = np.argsort(part, kind="stable")
    dealt = votes.take(pa.array(order))
    counts = np.bincount(part, minlength=n_parts)
    start = 0
    for number, count in enumerate(counts.tolist()):
        if count:
            yield number, dealt.slice(start, count)
        start += count


def _hash(values: pa.Array) -> NDArray[np.uint64]:
    """Return a hash of every value."""
    if pa.types.is_integer(values.type):
        mixed = values.to_numpy().astype(np.uint64) * _GOLDEN
        return np.asarray(mixed >> np.uint64(32))
    text_type = pa.large_binary() if pa.types.is_binary(values.type) else pa.large_string()
    texts = pc.cast(values, text_type)
    _, offset_buffer, byte_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(byte_buffer, np.uint8)
    lengths = np.diff(offsets)
    hashes = np.full(len(texts), _OFFSET_BASIS, dtype=np.uint64)
    rows = np.arange(len(texts))
    for position in range(int(lengths.max(initial=0))):  # FNV-1a, a byte of all texts at a time
        rows = rows[lengths[rows] > position]
        hashes[rows] = (hashes[rows] ^ content[offsets[rows] + position]) * _PRIME
    return (hashes * _GOLDEN) >> np.uint64(32)


class StreamedFit(NamedTuple):
    """Result of `stream_dawid_skene`: what the posterior of any item is computed from."""

    votes: PartitionedVotes
    pairs: Integers  # [q] annotator * c + label, of the pairs that occur, ascending
    log_confusion: Floats  # [q, c] log probability that the annotator gives the label to an item of each class
    log_prior: Floats  # [c]
    rounds: int
    converged: bool

    def posteriors(self) -> Iterator[tuple[Votes, Floats]]:
        """Yield every part with the posterior [n, c] of its items."""
        for part, votes in enumerate(self.votes):
            matrix = _read_matrix(self.votes.files(part))
            yield votes, _expected_labels(matrix, self.log_confusion, self.log_prior)


def stream_dawid_skene(
    votes: PartitionedVotes,
    *,
    smoothing: float = 0.01,
    tolerance: float = 1e-5,
    rounds: int = 200,
    show: bool = False,
) -> StreamedFit:
    """Estimate true labels and confusion matrices by EM, as `oneof.votes.dawid_skene` does, part by part.

    A round reads each part once: from the tables of annotators it computes the posterior of the part's items (E step), and adds them to the
    tables of the next round (M step). The posterior of the round before, which tells whether EM has converged, is kept on the disk in
    single precision.
    """
    c = len(votes.labels)
    pairs, n_items = _write_matrices(votes)
    annotator = pairs // c  # [q], ascending
    _check_tables(votes, len(pairs))
    counts = np.zeros((len(pairs), c))
    totals = np.zeros(c)
    for part in range(votes.n_parts):
        files = votes.files(part)
        matrix = _read_matrix(files)
        posterior = _vote_shares(matrix, pairs % c, c, smoothing)
        np.save(files.posterior, posterior.astype(np.float32))
        _add_counts(counts, totals, matrix, posterior)
    n_rounds = 0
    converged = False
    log_confusion = counts
    log_prior = totals
    with progress_bar("Dawid-Skene", rounds, show, unit="rounds") as step:
        while n_rounds < rounds and not converged:
            log_confusion = _log_confusion(counts, annotator, smoothing)
            log_prior = np.log((totals + smoothing) / (n_items + c * smoothing))
            counts = np.zeros_like(log_confusion)
            totals = np.zeros(c)
            change = 0.0
            for part in range(votes.n_parts):
                files = votes.files(part)
                matrix = _read_matrix(files)
                posterior = _expected_labels(matrix, log_confusion, log_prior)
                change += float(np.abs(posterior - np.load(files.posterior)).sum())
                np.save(files.posterior, posterior.astype(np.float32))
                _add_counts(counts, totals, matrix, posterior)
            n_rounds += 1
            converged = change / (2 * n_items) <= tolerance
            step(f"{change / (2 * n_items):.2g} of the mass moved")
    return StreamedFit(votes, pairs, log_confusion, log_prior, n_rounds, converged)


def _write_matrices(votes: PartitionedVotes) -> tuple[Integers, int]:
    """Write item, pair (annotator, label) and weight of every vote; return the pairs that occur and the number of items.

    Pairs become positions among those that occur in a second pass, when all of them are known.
    """
    c = len(votes.labels)
    occurs = np.zeros(len(votes.annotators) * c, dtype=bool)
    n_items = 0
    for part, read in enumerate(votes):
        pair = read.annotator * c + read.label
        occurs[pair] = True
        n_items += len(read.items)
        np.savez(
            votes.files(part).matrix,
            offsets=np.searchsorted(read.item, np.arange(len(read.items) + 1)),
            pair=pair,
            weight=read.share,
        )
    position = np.cumsum(occurs) - 1
    for part in range(votes.n_parts):
        path = votes.files(part).matrix
        with np.load(path) as stored:
            arrays = dict(stored)
        occurring, column = np.unique(position[arrays.pop("pair")], return_inverse=True)
        arrays["pairs"] = occurring.astype(np.int32)
        arrays["column"] = column.astype(np.int32)
        arrays["offsets"] = arrays["offsets"].astype(np.int32)
        np.savez(path, **arrays)
    return np.flatnonzero(occurs), n_items


class _Matrix(NamedTuple):
    """Weights of the votes of a part on n items, sparse; only the u pairs that occur in the part have a column."""

    by_item: Any  # [n, u]
    pairs: Integers  # [u] position of each column among all pairs


def _read_matrix(files: PartFiles) -> _Matrix:
    """Read the weights of the votes of a part."""
    with np.load(files.matrix) as stored:
        offsets = stored["offsets"]
        pairs = stored["pairs"]
        by_item = csr_array((stored["weight"], stored["column"], offsets), shape=(len(offsets) - 1, len(pairs)))
    return _Matrix(by_item, pairs)


def _vote_shares(matrix: _Matrix, label_of_pair: Integers, c: int, smoothing: float) -> Floats:
    """Return the share of each label in an item's votes [n, c], with `smoothing` added to every count."""
    labels = label_of_pair[matrix.pairs]
    to_label = csr_array((np.ones(len(labels)), (np.arange(len(labels)), labels)), shape=(len(labels), c))
    counts = (matrix.by_item @ to_label).toarray() + smoothing
    shares: Floats = counts / counts.sum(1, keepdims=True)
    return shares


def _expected_labels(matrix: _Matrix, log_confusion: Floats, log_prior: Floats) -> Floats:
    """Return the posterior [n, c] of the items of a part: the E step."""
    logits: Floats = matrix.by_item @ log_confusion[matrix.pairs]
    logits += log_prior
    logits -= logits.max(1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(1, keepdims=True)
    return logits


def _add_counts(counts: Floats, totals: Floats, matrix: _Matrix, posterior: Floats) -> None:
    """Add the expected votes of a part for each pair and class [q, c], and the expected items of each class [c]: the M step."""
    counts[matrix.pairs] += matrix.by_item.T @ posterior
    totals += posterior.sum(0)


def _log_confusion(counts: Floats, annotator: Integers, smoothing: float) -> Floats:
    """Return the log of the smoothed shares of each annotator's labels, for every class [q, c]."""
    c = counts.shape[1]
    starts = np.flatnonzero(np.diff(annotator, prepend=-1))
    totals = np.add.reduceat(counts, starts)
    log_totals = np.log(totals + c * smoothing)
    of_pair = np.cumsum(np.diff(annotator, prepend=-1) != 0) - 1
    log_confusion = np.log(counts + smoothing)
    log_confusion -= log_totals[of_pair]
    return log_confusion


def _check_tables(votes: PartitionedVotes, n_pairs: int) -> None:
    """Raise ValueError if the tables of annotators do not fit in memory."""
    needed = 3 * 8 * n_pairs * len(votes.labels)
    free = available_memory()
    if needed > free:
        raise ValueError(
            f"tables of annotators by labels must fit in memory; {n_pairs:,} pairs of an annotator and a label, times "
            f"{len(votes.labels):,} labels, need {needed / 2**30:,.1f} GiB, {free / 2**30:,.1f} GiB are free. "
            "Use fewer labels, or another policy."
        )


@dataclass(frozen=True)
class StreamSummary:
    """Counts of streamed votes, the agreement of the annotators, and the sizes of the sets."""

    items: int
    annotators: int
    labels: int
    answers: int  # an annotator on an item
    votes: int  # labels in all answers
    vague: int  # answers of more than one label
    repeated: int  # votes given twice by one annotator, merged into one
    alpha: float | None  # Krippendorff's, over answers of one label
    ties: int  # items on which two labels or more share the most votes
    far: list[AnnotatorAgreement]  # annotators who agree far less with the others than the median annotator
    average: float  # labels per set
    largest: int
    singletons: int
    fallback: int  # items to which the policy itself gave no label
    note: str
    remarks: tuple[str, ...]  # how repeated votes were understood


def stream_votes(
    votes: PartitionedVotes,
    policy: str = "union",
    *,
    k: int = 2,
    p: float = 0.9,
    out: Path | None = None,
    show: bool = False,
) -> StreamSummary:
    """Make candidate sets of streamed votes, write them, and summarise both.

    Parameters
    ----------
    votes
        Votes in parts.
    policy
        "union", "at-least" (k votes), "vaguest", or "dawid-skene" (labels that reach probability p).
    out
        The .parquet or .csv file to write, with the columns of `oneof.votes.to_table`. None: only summarise.
    show
        Show progress.
    """
    fit = None
    if policy == "dawid-skene":
        fit = stream_dawid_skene(votes, show=show)
    agreement = Agreement(votes)
    counts = _SetCounts()
    with ExitStack() as stack, progress_bar("sets", votes.n_parts, show, unit="parts") as step:
        writer = None
        if out is not None:
            writer = stack.enter_context(SheetWriter(out))
        for part, sets in _sets_of_parts(votes, policy, k, p, fit):
            agreement.add(part)
            counts.add(part, sets)
            if writer is not None:
                writer.write(to_table(part, sets))
            step()
    note = ""
    if fit is not None:
        outcome = "converged" if fit.converged else "did not converge"
        note = f"Dawid-Skene {outcome} in {fit.rounds} rounds."
    elif counts.fallback:
        note = f"Items without a label of {k} votes: {counts.fallback}; their labels with most votes were kept."
    remarks = []
    if counts.uneven:
        remarks.append(remark_on_uneven_answers(counts.uneven))
    return StreamSummary(
        items=counts.items,
        annotators=len(votes.annotators),
        labels=len(votes.labels),
        answers=counts.answers,
        votes=counts.votes,
        vague=counts.vague,
        repeated=counts.repeated,
        alpha=agreement.alpha,
        ties=counts.ties,
        far=agreement.far,
        average=counts.set_labels / counts.items,
        largest=counts.largest,
        singletons=counts.singletons,
        fallback=counts.fallback,
        note=note,
        remarks=tuple(remarks),
    )


def _sets_of_parts(
    votes: PartitionedVotes, policy: str, k: int, p: float, fit: StreamedFit | None
) -> Iterator[tuple[Votes, Sets]]:
    """Yield every part with the candidate sets of its items."""
    if fit is not None:
        for part, posterior in fit.posteriors():
            yield part, Sets(top_p_set(posterior, p))
        return
    for part in votes:
        if policy == "union":
            yield part, union(part)
        elif policy == "at-least":
            yield part, at_least(part, k)
        elif policy == "vaguest":
            yield part, vaguest(part)
        else:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}; got {policy!r}.")


class _SetCounts:
    """Counts over parts."""

    def __init__(self) -> None:
        self.items = 0
        self.answers = 0
        self.votes = 0
        self.vague = 0
        self.repeated = 0
        self.uneven = 0
        self.ties = 0
        self.set_labels = 0
        self.largest = 0
        self.singletons = 0
        self.fallback = 0

    def add(self, part: Votes, sets: Sets) -> None:
        """Count the votes of a part and its sets."""
        answer_sizes = np.bincount(part.answer)
        counts = tally(part)
        set_sizes = sets.mask.sum(1)
        self.items += len(part.items)
        self.answers += len(answer_sizes)
        self.votes += len(part.item)
        self.vague += int((answer_sizes > 1).sum())
        self.repeated += part.repeated
        if part.frequency is not None:
            self.uneven += count_uneven_answers(part.item, part.annotator, part.frequency)
        self.ties += int((np.bincount(counts.item[counts.most]) > 1).sum())
        self.set_labels += int(set_sizes.sum())
        self.largest = max(self.largest, int(set_sizes.max()))
        self.singletons += int((set_sizes == 1).sum())
        self.fallback += sets.fallback


class Agreement:
    """Krippendorff's alpha, and how far each annotator agrees with the others, summed over parts.

    Both are those of `oneof.votes.alpha` and `oneof.votes.annotator_agreement` on all votes.
    """

    def __init__(self, votes: PartitionedVotes) -> None:
        self._names = votes.annotators
        self._label_counts = np.zeros(len(votes.labels))
        self._agreeing = 0.0
        self._n_agreeing = np.zeros(len(votes.annotators), dtype=np.int64)
        self._n_compared = np.zeros(len(votes.annotators), dtype=np.int64)

    def add(self, part: Votes) -> None:
        """Add the answers of a single label of a part."""
        single, same_label_count = single_label_answers(part)
        n_answers = np.bincount(single.item, minlength=len(part.items))[single.item]
        paired = n_answers > 1
        self._label_counts += np.bincount(single.label[paired], minlength=len(self._label_counts))
        self._agreeing += float(((same_label_count[paired] - 1) / (n_answers[paired] - 1)).sum())
        agrees, differs = compare_with_others(single.item, same_label_count)
        n_annotators = len(self._names)
        n_agreeing = np.bincount(single.annotator[agrees], minlength=n_annotators)
        self._n_agreeing += n_agreeing
        self._n_compared += n_agreeing + np.bincount(single.annotator[differs], minlength=n_annotators)

    @property
    def alpha(self) -> float | None:
        """Return Krippendorff's alpha; None where it is not defined."""
        total = self._label_counts.sum()
        expected = total**2 - (self._label_counts**2).sum()
        if expected == 0:
            return None
        return float(1 - (total - 1) * (total - self._agreeing) / expected)

    @property
    def annotators(self) -> list[AnnotatorAgreement]:
        """Return the agreement of every annotator."""
        return agreement_of_counts(self._names, self._n_agreeing, self._n_compared)

    @property
    def far(self) -> list[AnnotatorAgreement]:
        """Return the annotators who agree far less with the others than the median annotator, the most distant first."""
        far = [annotator for annotator in self.annotators if annotator.far]
        return sorted(far, key=lambda annotator: annotator.rate or 0.0)

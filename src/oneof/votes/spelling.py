"""Parse the text of an answer into the labels that it names or implies.

A vote for a parent in a taxonomy counts for all leaves below it, and "not X" for every label but X: both are vague
answers of several labels. "unsure" is no vote. A name listed in `classes` is always a label.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oneof.candidates.read import show
from oneof.data.files.columns import open_table
from oneof.data.files.source import is_number
from oneof.storage.did_you_mean import did_you_mean
from oneof.storage.files import atomic_write
from oneof.storage.printable import shortened
from oneof.votes.final_answer import is_sentence
from oneof.votes.free_text import (
    MAX_UNMATCHED,
    MIN_ANSWERS,
    MIN_VAGUE_SHARE,
    Meaning,
    class_of_number,
    find_classes,
    fold,
    is_no_vote,
    is_variant,
    meaning_of,
    numbered_classes,
)
from oneof.votes.tables import load_columns, load_json, without_decimals

Integers = NDArray[np.intp]


class Taxonomy:
    """A hierarchy of labels.

    Parameters
    ----------
    pairs
        Pairs (child, parent). A child may have several parents.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        children: dict[str, list[str]] = {}
        for child, parent in pairs:
            children.setdefault(parent, []).append(child)
        self.parents = list(children)
        self._leaves: dict[str, list[str]] = {}
        try:
            # In topological order the leaves of every child are known before its parent is reached.
            for name in TopologicalSorter(children).static_order():
                leaves: list[str] = []
                for child in children.get(name, ()):
                    leaves.extend(self.leaves(child))
                self._leaves[name] = _distinct(leaves) or [name]
        except CycleError as error:
            cycle = " > ".join(reversed(error.args[1]))
            raise ValueError(f"a taxonomy must have no cycle; it has {cycle}. Drop one of these lines.") from error

    def leaves(self, name: str) -> list[str]:
        """Return the leaves below a label, or the label itself if it is a leaf or not in the taxonomy."""
        return self._leaves.get(name, [name])


@dataclass(frozen=True)
class Spelling:
    """Configure how a text is parsed into labels.

    A text is looked up as a whole, then split, and each part is stripped and looked up.

    Parameters
    ----------
    separator
        What separates the labels of one answer. None: an answer is one label.
    synonyms
        A mapping from texts to labels. A text that is mapped to "" (such as "I cannot tell") is no answer.
    normalise
        Strip and casefold texts, synonyms and classes before they are compared.
    classes
        All labels, in order. None: the labels that occur, sorted.
    taxonomy
        A vote for a parent counts for all leaves below it.

    Examples
    --------
    >>> list(Spelling(separator="|", synonyms={"kitty": "cat"}).reader()("kitty|dog"))
    ['cat', 'dog']
    """

    separator: str | None = None
    synonyms: Mapping[str, str] = field(default_factory=dict)
    normalise: bool = False
    classes: Sequence[str] | None = None
    taxonomy: Taxonomy | None = None

    def reader(self) -> Callable[[str], Iterable[str]]:
        """Return a function that maps a text to the distinct labels in it."""
        if self.separator == "":
            raise ValueError("separator must not be empty; leave it out where an answer is one label.")
        known_classes = self._with_folded_keys("classes", {name: name for name in self.classes or ()})
        synonyms = self._with_folded_keys("synonyms", self.synonyms)

        def read(text: str) -> Iterable[str]:
            mapped = synonyms.get(self._fold(text))
            separator = self.separator
            if mapped is not None:
                text = mapped
                separator = separator or "|"  # a map may name several labels
            parts = text.split(separator) if separator else [text]
            labels: dict[str, None] = {}  # an ordered set
            for part in parts:
                folded = self._fold(part)
                name = synonyms.get(folded, folded)
                label = known_classes.get(self._fold(name), name)
                if label:
                    labels[label] = None
            return labels

        return read

    def _fold(self, text: str) -> str:
        if self.normalise:
            return text.strip().casefold()
        if self.separator:
            return text.strip()  # in "cat, dog" the blank belongs to the comma
        return text

    def _with_folded_keys(self, argument: str, names: Mapping[str, str]) -> dict[str, str]:
        """Return the mapping with normalised keys; raise ValueError if two keys of different values become equal."""
        folded: dict[str, str] = {}
        original_keys: dict[str, str] = {}
        for key, value in names.items():
            folded_key = self._fold(key)
            original_key = original_keys.setdefault(folded_key, key)
            if folded.setdefault(folded_key, value) != value:
                same = f"{original_key!r} and {key!r} are the same then"
                raise ValueError(f"{argument} must stay distinct when normalised; {same}. Rename or drop one.")
        return folded


AS_WRITTEN = Spelling()


def expand_labels(
    answers: list[list[str]], counts: Sequence[int], classes: Sequence[str] | None, taxonomy: Taxonomy | None
) -> tuple[list[list[str]], list[str]]:
    """Replace parents by their leaves and "not X" by all other labels, and drop "unsure".

    Parameters
    ----------
    answers
        The names in each distinct answer.
    counts
        How often each of the answers was given.
    classes
        Names that are always labels, whatever they look like.
    taxonomy
        Labels below labels.

    Returns
    -------
    labels
        The labels of each distinct answer.
    remarks
        Notes for the user on what was expanded or dropped.
    """
    known = set(classes or ())
    tree = taxonomy or Taxonomy(())
    total = sum(counts)
    unsure: Counter[str] = Counter()
    label_counts: Counter[str] = Counter()
    leaves_of_answers: list[list[str]] = []
    for names, count in zip(answers, counts, strict=True):
        leaves: list[str] = []
        if len(names) == 1 and names[0] not in known and is_no_vote(names[0], count, total):
            unsure[names[0]] += count
        else:
            for name in names:
                leaves.extend(tree.leaves(name))
        leaves = _distinct(leaves)
        leaves_of_answers.append(leaves)
        label_counts.update(dict.fromkeys(leaves, count))

    frequent = set()
    if total >= MIN_ANSWERS:
        frequent = {name for name, count in label_counts.items() if count >= MIN_VAGUE_SHARE * total}
    negations = _expand_negations(known | label_counts.keys(), known | frequent, tree)
    expanded = []
    for leaves in leaves_of_answers:
        labels: list[str] = []
        for name in leaves:
            labels.extend(negations.get(name, [name]))
        expanded.append(_distinct(labels))
    return expanded, list(_remarks(unsure, negations, label_counts, known))


def _distinct(names: Iterable[str]) -> list[str]:
    """Return the names without duplicates, in order of first appearance."""
    return list(dict.fromkeys(names))


def _expand_negations(vocabulary: Iterable[str], known: set[str], tree: Taxonomy) -> Mapping[str, list[str]]:
    """Map every "not X" to the labels it stands for.

    X must be a label or a parent, and some label must be left: "not spam" beside "spam" alone is a label itself.
    """
    negated = {}
    for name in sorted(vocabulary):  # a set: sorted, so that remarks come in the same order in every process
        if name[:4].casefold() == "not " and name not in known:
            negated[name] = name[4:].strip()
    labels = sorted(set(vocabulary) - negated.keys())
    by_folded_name = {name.casefold(): name for name in [*tree.parents, *labels]}
    negations = {}
    for name, excluded in negated.items():
        excluded_labels = set(tree.leaves(by_folded_name.get(excluded.casefold(), excluded)))
        remaining = [label for label in labels if label not in excluded_labels]
        if excluded_labels & set(labels) and remaining:
            negations[name] = remaining
    return negations


def _remarks(
    unsure: Counter[str], negations: Mapping[str, list[str]], label_counts: Mapping[str, int], known: set[str]
) -> Iterator[str]:
    """Yield notes for the user on how answers were interpreted."""
    if unsure:
        example = shortened(unsure.most_common(1)[0][0], 40)
        yield f"{unsure.total():,} answers such as {example!r} are not counted as votes."
    for name in list(negations)[:3]:
        answers = f"{label_counts[name]:,} answers {name!r}"
        yield f"{answers} are votes for every other label. If it is a label itself, list all labels as classes."
    single_use = []
    for name, count in label_counts.items():
        if count == 1 and name not in known and name not in negations:
            single_use.append(name)
    if single_use and len(label_counts) - len(single_use) > 1:
        examples = ", ".join(repr(name) for name in single_use[:3])
        if len(single_use) > 3:
            examples += ", ..."
        if len(single_use) == 1:
            yield f"1 label occurs only once ({examples}). If it is misspelt, map it to another."
        else:
            yield f"{len(single_use):,} labels occur only once ({examples}). If they are misspelt, map them to others."


class ParsedLabels(NamedTuple):
    """The m labels that were found in r texts."""

    labels: list[str]  # [c]
    row: Integers  # [m] index of the text, ascending
    label: Integers  # [m] index of the label
    remarks: list[str]  # notes for the user on how answers were interpreted
    meanings: list[Meaning]  # answers in free text, and the labels that they were mapped to


def parse_labels(texts: Any, spelling: Spelling, place: Callable[[int], str]) -> ParsedLabels:
    """Parse texts into labels, each distinct text once.

    Parameters
    ----------
    texts
        Arrow array of strings [r].
    spelling
        How a text is parsed.
    place
        A function that describes where the text of an index is, for messages.
    """
    encoded = texts.dictionary_encode()
    code = encoded.indices.to_numpy().astype(np.intp)  # [r]
    distinct_texts = encoded.dictionary.to_pylist()
    counts = np.bincount(code, minlength=len(distinct_texts)).tolist()
    labels_of_texts, remarks, meanings = _interpret(distinct_texts, counts, spelling)

    if spelling.classes is None:
        labels = sorted(set(chain.from_iterable(labels_of_texts)))
    else:
        labels = list(spelling.classes)
        _check_classes(labels)
    _check_known(labels_of_texts, counts, labels, lambda text_index: place(int((code == text_index).argmax())))

    label_index = {name: j for j, name in enumerate(labels)}
    indices_of_texts = [[label_index[name] for name in names] for names in labels_of_texts]
    indices = pa.array(indices_of_texts, pa.list_(pa.int64())).take(code)
    row = pc.list_parent_indices(indices).to_numpy()
    label = pc.list_flatten(indices).to_numpy()
    return ParsedLabels(labels, row, label, remarks, meanings)


def _interpret(
    texts: list[str], counts: list[int], spelling: Spelling
) -> tuple[list[list[str]], list[str], list[Meaning]]:
    """Return the labels of each distinct text, notes for the user, and the meanings of answers in free text."""
    read = spelling.reader()
    names_of_texts = [list(read(text)) for text in texts]
    _drop_decimals(names_of_texts, spelling.classes or ())
    meanings, classes = _map_free_text(texts, names_of_texts, counts, spelling)
    labels_of_texts, remarks = expand_labels(names_of_texts, counts, spelling.classes or classes, spelling.taxonomy)
    if spelling.classes is None:
        minus_one_remarks = _interpret_minus_one(labels_of_texts)
        if minus_one_remarks:  # that -1 occurs only once would be a second remark on it
            remarks = [remark for remark in remarks if "only once ('-1')" not in remark]
        remarks.extend(minus_one_remarks)
    if meanings:
        remarks.insert(0, _describe_meanings(meanings))
    return labels_of_texts, remarks, meanings


def _check_known(
    labels_of_texts: list[list[str]], counts: list[int], labels: list[str], place: Callable[[int], str]
) -> None:
    """Raise ValueError for labels that are no classes, with the most frequent of them; `place` describes where a text is first."""
    known = set(labels)
    unknown: Counter[str] = Counter()
    first: tuple[str, int] | None = None
    for text_index, names in enumerate(labels_of_texts):
        for name in names:
            if name not in known:
                unknown[name] += counts[text_index]
                first = first or (name, text_index)
    if first is None:
        return
    name, text_index = first
    others = ""
    if len(unknown) > 1:
        most = ", ".join(f"{shortened(other, 40)!r} ({count:,})" for other, count in unknown.most_common(4))
        others = f"; {unknown.total():,} answers name none of them, most often {most}"
    got = f"got {shortened(name)!r} in {place(text_index)}{others}"
    advice = f"{did_you_mean(name, labels)} Map it, or add it to the classes."
    if others:
        advice = " Map them with --map, or add them to the classes."
    raise ValueError(f"labels must be among the classes {show(labels)}; {got}.{advice}")


def _drop_decimals(names_of_texts: list[list[str]], classes: Sequence[str]) -> None:
    """Write whole numbers without decimals in place, where all labels are numbers: "1.0" is the label "1"."""
    for names in names_of_texts:
        if not all(is_number(name) for name in names):
            return
    for index, names in enumerate(names_of_texts):
        plain = [name if name in classes else without_decimals(name) for name in names]
        names_of_texts[index] = _distinct(plain)


def _interpret_minus_one(labels_of_texts: list[list[str]]) -> list[str]:
    """Drop the label -1 in place where labels are numbered from 0 up to 2 or more; return a remark on what it is taken for."""
    labels = set(chain.from_iterable(labels_of_texts))
    others = labels - {"-1"}
    if "-1" not in labels or not others or not all(name.isdecimal() for name in others):
        return []
    if max(int(name) for name in others) < 2:
        return ["-1 is taken for a label. If it means no vote, map it to an empty label (--map)."]
    for names in labels_of_texts:
        if "-1" in names:
            names.remove("-1")
    return [
        "-1 is taken for no vote, since the other labels are 0 or more. If it is a label, list all labels (--classes)."
    ]


def _map_free_text(
    texts: list[str], names_of_texts: list[list[str]], counts: list[int], spelling: Spelling
) -> tuple[list[Meaning], list[str]]:
    """Replace the names of answers in free text by the classes that they stand for, in place.

    Classes are those that were given, or the frequent answers if others are variants of them. An answer in which no class is
    recognised stays as it is, unless classes were given and few answers are like it: then it is no vote.

    Returns
    -------
    meanings
        The answers that were replaced, the most frequent first.
    classes
        The classes.
    """
    if spelling.taxonomy is not None:
        return [], []
    single_counts = _count_single_names(texts, names_of_texts, counts, spelling.normalise)
    classes = list(spelling.classes or find_classes(single_counts))
    if not classes:
        return [], []
    are_given = spelling.classes is not None
    numbered = numbered_classes(single_counts, classes)
    mapped: dict[int, list[str]] = {}
    unrecognised = []
    for index, text in enumerate(texts):
        names = names_of_texts[index]
        if all(name in classes for name in names) or text in spelling.synonyms:
            continue
        if _is_plain_negation(names[0], classes):
            continue  # left to `expand_labels`
        labels = _recognise(text, names, classes, numbered, are_given)
        if labels is None:
            unrecognised.append(index)
        else:
            mapped[index] = labels

    total = sum(counts)
    n_unrecognised = sum(counts[index] for index in unrecognised)
    if are_given and total >= MIN_ANSWERS and n_unrecognised <= MAX_UNMATCHED * total:
        for index in unrecognised:
            mapped[index] = []
    meanings = []
    for index, labels in mapped.items():
        names_of_texts[index] = labels
        meanings.append(Meaning(texts[index], tuple(labels), counts[index]))
    return sorted(meanings, key=lambda meaning: -meaning.n_answers), classes


def _count_single_names(
    texts: list[str], names_of_texts: list[list[str]], counts: list[int], normalised: bool
) -> dict[str, int]:
    """Return how often each answer of a single name was given, as it was written or as it was normalised."""
    single_counts: dict[str, int] = {}
    for text, names, count in zip(texts, names_of_texts, counts, strict=True):
        if len(names) == 1:
            name = names[0] if normalised else text
            single_counts[name] = single_counts.get(name, 0) + count
    return single_counts


def _recognise(
    text: str, names: Sequence[str], classes: Sequence[str], numbered: Mapping[str, str], are_given: bool
) -> list[str] | None:
    """Return the classes that an answer stands for; an empty list if it is no vote, None if none is recognised.

    If classes were found among the answers, not given, other answers may be labels too.
    """
    if len(names) == 1:
        labels = meaning_of(text, classes)
    else:
        labels = _meaning_of_parts(names, classes)
    if labels is None:
        numbered_class = class_of_number(text, numbered)
        if numbered_class is not None:
            return [numbered_class]
    if are_given:
        return labels
    if is_sentence(text):
        return labels or []  # a sentence is no label: without a class it is no vote
    if labels is not None and len(labels) == 1 and not is_variant(text, labels[0]):
        return None  # "hot dog" is no "dog"
    return labels


def _is_plain_negation(name: str, classes: Sequence[str]) -> bool:
    """Return whether a name is "not " and a class, and no class itself."""
    if name[:4].casefold() != "not " or name[4:].strip() not in classes:
        return False
    return fold(name) not in {fold(known) for known in classes}


def _meaning_of_parts(names: Sequence[str], classes: Sequence[str]) -> list[str] | None:
    """Return the classes that the parts of an answer stand for; None if one cannot be told."""
    labels: list[str] = []
    for name in names:
        meaning = meaning_of(name, classes)
        if meaning is None:
            return None
        labels.extend(meaning)
    return _distinct(labels)


def _describe_meanings(meanings: Sequence[Meaning]) -> str:
    """Return a remark on the answers that were mapped, with the most frequent."""
    examples = []
    for meaning in meanings[:6]:
        labels = " or ".join(meaning.labels) or "no vote"
        examples.append(f"{shortened(meaning.answer, 40)!r} = {labels} ({meaning.n_answers:,})")
    more = ", ..." if len(meanings) > 6 else ""
    n_answers = sum(meaning.n_answers for meaning in meanings)
    mapped = f"{n_answers:,} answers in {len(meanings):,} spellings were mapped to labels: {', '.join(examples)}{more}."
    return f"{mapped} --map-out FILE writes all of them; corrected, --map FILE reads them."


def _check_classes(classes: list[str]) -> None:
    """Raise ValueError if a class is empty or listed twice."""
    previous: set[str] = set()
    for name in classes:
        if not name:
            raise ValueError(f"classes must be distinct names; got {name!r}. Leave it out.")
        if name in previous:
            raise ValueError(f"classes must be distinct names; got {name!r} twice. Drop one.")
        previous.add(name)


def read_map(path: str | Path) -> dict[str, str]:
    """Read synonyms from a table with the columns `answer` and `label` (or `from` and `to`), or from a JSON object of texts.

    An empty label drops the answer; "cat|dog" is an answer of two labels.
    """
    synonyms: dict[str, str] = {}
    key = "from"
    value = "to"
    if Path(path).suffix.lower() in (".csv", ".tsv") and Path(path).is_file():
        names = open_table(Path(path)).names
        if "from" not in names and "answer" in names:
            key = "answer"
            value = "label"
    for source, target in _read_pairs(Path(path), key, value):
        if synonyms.setdefault(source, target) != target:
            got = f"{path} maps {source!r} to {synonyms[source]!r} and {target!r}"
            raise ValueError(f"a map must give each text one meaning; {got}. Drop one of them.")
    return synonyms


def write_map(meanings: Sequence[Meaning], path: Path) -> None:
    """Write what answers were mapped to, in the form that `read_map` reads."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["answer", "label", "count"])
    for meaning in meanings:
        writer.writerow([meaning.answer, "|".join(meaning.labels), meaning.n_answers])
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


def read_taxonomy(path: str | Path) -> Taxonomy:
    """Read a taxonomy from a table with the columns `child` and `parent`, or from a JSON object {child: parent}."""
    try:
        pairs = _read_pairs(Path(path), "child", "parent")
        return Taxonomy((child, parent) for child, parent in pairs if parent)
    except ValueError as error:
        raise ValueError(f"{error} ({path})") from error


def _read_pairs(path: Path, key: str, value: str) -> Iterable[tuple[str, str]]:
    """Return two columns of a table, or the members of a JSON object, as pairs."""
    if path.suffix.lower() != ".json":
        table = load_columns(path, [key], [value])
        keys = table.strings(key).to_pylist()
        values = table.strings(value).fill_null("").to_pylist()
        return zip(keys, values, strict=True)
    content = load_json(path)
    if not isinstance(content, dict) or not all(isinstance(text, str) for text in content.values()):
        raise ValueError(f'a map in JSON must be one object of texts, as {{"kitty": "cat"}}; {path} is not.')
    return content.items()

"""Read tagged text whose candidate tags come from a dictionary, as Garrette and Baldridge publish it: `word|TAG`, separated by spaces.

A sentence is a line. A word has the tags that the dictionary gives it; a word that it lacks has all of its tags. Features are made
here: indicators of the word, its prefixes and suffixes, its neighbours and their endings, and its shape.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FEATURES = 384  # the most frequent indicators; the paper's Malagasy has as many features
AFFIXES = (1, 2, 3)  # lengths of prefixes and suffixes


class Tagged(NamedTuple):
    """Tokens with features, candidate tags and true tags."""

    x: NDArray[np.float32]  # [n, d] indicators
    labels: NDArray[np.intp]  # [n]
    classes: list[str]  # [c]
    candidates: NDArray[np.bool_]  # [n, c]


def read_tagged(text: Path, dictionary: Path, features: int = FEATURES) -> Tagged:
    """Read sentences and a tag dictionary; return the tokens' features, sets and true tags."""
    known: dict[str, set[str]] = {}
    for line in _read_lines(dictionary):
        for word, tag in line:
            known.setdefault(word, set()).add(tag)
    every_tag = set().union(*known.values())
    words = []
    truth = []
    names: list[list[str]] = []
    for sentence in _read_lines(text):
        sentence_words = [word for word, _ in sentence]
        neighbours = ["", *sentence_words, ""]
        for position, (word, tag) in enumerate(sentence):
            words.append(word)
            truth.append(tag)
            names.append(indicators(neighbours[position], word, neighbours[position + 2]))
    classes = sorted(every_tag.union(truth))
    number = {tag: j for j, tag in enumerate(classes)}
    mask = np.zeros((len(words), len(classes)), dtype=bool)
    for row, word in enumerate(words):
        mask[row, [number[tag] for tag in known.get(word, every_tag)]] = True
    labels = np.array([number[tag] for tag in truth], dtype=np.intp)
    return Tagged(_most_frequent(names, features), labels, classes, mask)


def indicators(previous: str, word: str, following: str) -> list[str]:
    """Return the names of the indicators that are on for a word between two others.

    >>> indicators("", "Izy", "dia")[:4]
    ['word izy', 'prefix i', 'prefix iz', 'prefix izy']
    """
    lower = word.lower()
    lengths = [length for length in AFFIXES if length <= len(lower)]
    names = [f"word {lower}"]
    names += [f"prefix {lower[:length]}" for length in lengths]
    names += [f"suffix {lower[-length:]}" for length in lengths]
    for side, neighbour in (("previous", previous.lower()), ("next", following.lower())):
        names += [f"{side} {neighbour}", f"{side} suffix {neighbour[-2:]}"]
    if word != lower:
        names.append("capital")
    if any(character.isdigit() for character in word):
        names.append("digit")
    if not any(character.isalnum() for character in word):
        names.append("punctuation")
    names.append("short" if len(word) <= 3 else "long")
    return names


def _most_frequent(names: list[list[str]], features: int) -> NDArray[np.float32]:
    """Return the most frequent indicators [n, d] of tokens that have these names."""
    counts: Counter[str] = Counter()
    for of_token in names:
        counts.update(of_token)
    by_frequency = sorted(counts, key=lambda name: (-counts[name], name))
    column = {name: j for j, name in enumerate(by_frequency[:features])}
    x = np.zeros((len(names), len(column)), dtype=np.float32)
    for row, of_token in enumerate(names):
        x[row, [column[name] for name in of_token if name in column]] = 1
    return x


def _read_lines(path: Path) -> list[list[tuple[str, str]]]:
    """Return (word, tag) pairs, line by line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8 ({error}). Download it again.") from error
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        pairs = []
        for token in line.split():
            word, bar, tag = token.rpartition("|")
            if not (word and bar and tag):
                raise ValueError(f"{path} must hold word|TAG divided by spaces; line {number} has {token[:40]!r}.")
            pairs.append((word, tag))
        lines.append(pairs)
    if not any(lines):
        raise ValueError(f"{path} must hold at least one token; it has none.")
    return lines

"""Map what language models write ("**HUMAN**", "Answer: Human.", "HUMAN or ENTITY", "N/A") to classes."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

MIN_ANSWERS = 20  # fewer answers do not show what is frequent
MIN_CLASS_COUNT = 3
MIN_CLASS_SHARE = 0.01  # of all answers: what is written less often is no class that is found
MIN_CLASS_MASS = 0.6  # of all answers that the classes that are found must have
MAX_LABEL_WORDS = 4  # a rare answer of more words is a sentence, not a label
MIN_LENGTH = 5  # of a word that may be misspelt, by one letter
MAX_CASED_LENGTH = 2  # of a label that may differ from another by case alone
MISSPELT_RATIO = 5  # times as frequent as a near miss of it: what makes that a misspelling and no class
_MAX_NEGATION_LENGTH = 200  # characters before a name that may negate it: long texts are searched in linear time
MAX_UNMATCHED = 0.05  # of all answers: so many may name none of the given classes

_DECORATION = " \t\r\n*_`\"'\u201c\u201d\u2018\u2019.,;:!()[]{}<>"
_PREFIX = re.compile(
    r"^(?:the\s+)?(?:final\s+|correct\s+|best\s+)?(?:answer|label|category|class|classification|prediction)"
    r"(?:\s+is)?\s*[:=\-]*\s+|^(?:answer|label|category|class)\s*[:=]\s*",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"^(?:n/a|not applicable|unsure|uncertain|unclear|not sure|i(?:'m| am) (?:not sure|unsure|sorry|unable).*"
    r"|(?:i )?(?:don't|do not) know.*|(?:i )?(?:can't|cannot|can not) .*|none of (?:the above|these|them).*"
    r"|neither(?: of .*)?|no answer|as an ai.*|(?:sorry|i apologi[sz]e).*|\?+)$",
    re.IGNORECASE | re.DOTALL,
)
_NEGATED = re.compile(r"\b(?:not|rather than|instead of|neither|nor|isn't)\s+(?:an?\s+|the\s+)?", re.IGNORECASE)


class Meaning(NamedTuple):
    """What an answer was taken for."""

    answer: str
    labels: tuple[str, ...]  # none: no vote
    n_answers: int


def fold(text: str) -> str:
    """Return a text without decoration, a leading "Answer:" and differences of case. "C++" and "C", "3.5" and "3" stay apart."""
    stripped = text.strip(_DECORATION)
    without_prefix = _PREFIX.sub("", stripped, count=1).strip(_DECORATION)
    return re.sub(r"\s+", " ", (without_prefix or stripped)).casefold()


def is_refusal(text: str) -> bool:
    """Return whether an answer says that no label applies or can be told."""
    return bool(_REFUSAL.match(text.replace("\u2019", "'").strip(_DECORATION + "?") or text.strip()))


def find_classes(counts: Mapping[str, int]) -> list[str]:
    """Return the labels that frequent answers name, if some answers are decorated or vary around them; else none.

    Each class is written as its most frequent form. Nothing is returned for plain labels, however rare some are.
    """
    total = sum(counts.values())
    if total < MIN_ANSWERS:
        return []
    forms: dict[str, Counter[str]] = {}
    for text, count in counts.items():
        if not is_refusal(text):
            stripped = text.strip(_DECORATION)
            key = fold(text) if len(stripped) > MAX_CASED_LENGTH else stripped  # "C" and "c" stay apart
            forms.setdefault(key, Counter())[text] += count
    threshold = max(MIN_CLASS_COUNT, MIN_CLASS_SHARE * total)
    classes: dict[str, str] = {}
    mass = 0
    for folded, written in forms.items():
        if written.total() >= threshold and len(folded.split()) <= MAX_LABEL_WORDS:
            plain = [text for text, _ in written.most_common() if text == text.strip(_DECORATION)]
            most_common = written.most_common(1)[0][0].strip(_DECORATION)
            classes[folded] = plain[0] if plain else most_common
            mass += written.total()
    for folded in list(classes):  # nor is a misspelling that one model repeats
        for other in forms:
            is_rare_beside = MISSPELT_RATIO * forms[folded].total() <= forms[other].total()
            if is_rare_beside and _is_near_miss(folded, other):
                del classes[folded]
                break
    names = list(classes.values())
    for folded in list(classes):  # "cat or dog" beside cat and dog is no class
        others = [name for name in names if name != classes[folded]]
        parts = named_classes(classes[folded], others)
        if len(parts) > 1:
            del classes[folded]
    is_decorated = False
    for folded, name in classes.items():
        for text in forms[folded]:
            if text.casefold() != name.casefold() and text.strip().casefold() == text.casefold():
                is_decorated = True
    if not is_decorated or len(classes) < 2 or mass < MIN_CLASS_MASS * total:
        return []
    return sorted(classes.values())


def named_classes(text: str, classes: Sequence[str]) -> list[str]:
    """Return the classes that a text names as whole words, without those that it negates.

    Case is ignored for names of three letters or more; shorter ones, which are words of sentences too, are found only in
    lists such as "A or B".
    """
    by_length = sorted(classes, key=len, reverse=True)
    remaining = text
    first_position: dict[str, int] = {}
    for name in by_length:
        flags = re.IGNORECASE if len(name) >= 3 else re.NOFLAG
        pattern = re.compile(rf"(?<![\w+#.\-]){re.escape(name)}(?![\w+#]|[.\-]\w)", flags)
        if len(name) < 3 and not re.fullmatch(r"\W*\S{1,2}(?:\s*(?:,|/|or|and|\|)\s*\S{1,2})+\W*", text.strip()):
            continue
        for match in pattern.finditer(remaining):
            start = max(0, match.start() - _MAX_NEGATION_LENGTH)
            before = remaining[start : match.start()].rstrip("*_`\"' ") + " "
            is_negated = any(negation.end() == len(before) for negation in _NEGATED.finditer(before))
            if not is_negated:
                first_position.setdefault(name, match.start())
        remaining = pattern.sub(lambda match: "\0" * len(match.group()), remaining)
    return sorted(first_position, key=lambda name: first_position[name])


def _is_near_miss(word: str, name: str) -> bool:
    """Return whether two texts differ by one letter, or two that are swapped, after the first letter of a long word."""
    if word[:1] != name[:1] or min(len(word), len(name)) < MIN_LENGTH or not (word + name).replace(" ", "").isalpha():
        return False
    if abs(len(word) - len(name)) > 1:
        return False
    start = 0
    while start < min(len(word), len(name)) and word[start] == name[start]:
        start += 1
    if len(word) == len(name):
        is_swapped = word[start : start + 2] == name[start : start + 2][::-1] and word[start + 2 :] == name[start + 2 :]
        return is_swapped or word[start + 1 :] == name[start + 1 :]
    longer, shorter = (word, name) if len(word) > len(name) else (name, word)
    return longer[start + 1 :] == shorter[start:]


def meaning_of(text: str, classes: Sequence[str]) -> list[str] | None:
    """Return the classes that an answer stands for; an empty list for a refusal, None if it cannot be told."""
    stripped = text.strip(_DECORATION)
    if stripped in classes:
        return [stripped]
    folded = fold(text)
    by_fold: dict[str, list[str]] = {}
    for name in classes:
        by_fold.setdefault(fold(name), []).append(name)
    if len(by_fold.get(folded, ())) == 1:
        return by_fold[folded]
    if is_refusal(text):
        return []
    named = named_classes(text, classes)
    if named:
        return named
    near = [name for name in classes if _is_near_miss(folded, fold(name))]
    if len(near) == 1:
        return near
    if folded == "none":
        return []
    return None


def is_sentence(text: str) -> bool:
    """Return whether an answer is too long for a label."""
    return len(text.split()) > MAX_LABEL_WORDS


def is_variant(text: str, label: str) -> bool:
    """Return whether a text is a label but for decoration, case or one letter."""
    return fold(text) == fold(label) or _is_near_miss(fold(text), fold(label))

"""Map what language models write ("**HUMAN**", "Answer: Human.", "HUMAN or ENTITY", "N/A") to classes."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from oneof.candidates.cells import MIN_LENGTH, MISSPELT_RATIO, is_near_miss
from oneof.votes.final_answer import final_answer, is_sentence, without_reasoning

MIN_ANSWERS = 20  # fewer answers do not show what is frequent
MIN_CLASS_COUNT = 3
MIN_CLASS_SHARE = 0.01  # of all answers that name a class, for it to be found
MIN_TOTAL_SHARE = 0.6  # of all answers that name any class, for classes to be found
MIN_VAGUE_SHARE = (
    0.05  # of all answers that are a word such as "unknown", for it to be a class; with fewer, it is no vote
)
MIN_PREFIX_LENGTH = 3  # of an abbreviation of a class, such as "pos"
MIN_STEM_LENGTH = 6  # letters that two forms of a word have in common
MIN_STEM_SHARE = 0.6  # of the class
MAX_ENDING_LENGTH = 3  # letters of the other form behind them
MAX_CASED_LENGTH = 2  # of a label that may differ from another by case alone
_MAX_NEGATION_LENGTH = 200  # characters before a name that may negate it: long texts are searched in linear time
MAX_UNMATCHED = 0.05  # of all answers: so many may name none of the given classes

_QUOTES = "\"'`\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\u00ab\u00bb\u2039\u203a\u300c\u300d\u300e\u300f"
_DECORATION = " \t\r\n*_.,;:!()[]{}<>#\u2022\uff1a\u3002" + _QUOTES
_PREFIX = re.compile(
    r"^(?:the\s+|my\s+)?(?:final\s+|correct\s+|best\s+)?(?:answer|label|category|class|classification|prediction)"
    r"(?:\s+is)?\s*[:=\-]*\s+|^(?:answer|label|category|class)\s*[:=]\s*",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"^(?:#?n\s*/\s*a|n\.\s?a|null|nan|not applicable|unsure|not sure|no answer|no label|no response|idk|tbd|\?+|[-\u2013\u2014]+"
    r"|(?:i(?:'m| am) )?(?:not (?:entirely |quite |really )?sure|unsure|sorry|unable)\b.*"
    r"|(?:i )?(?:don't|do not) know\b.*|(?:i |we |it )?(?:can't|cannot|can not|could not|couldn't) .*"
    r"|(?:it is |it's )?(?:impossible|not possible) to .*|(?:there is |i have )?(?:not enough|insufficient|no) (?:information|context|evidence)\b.*"
    r"|(?:the (?:text|question|sentence|message|passage) )?does(?:n't| not) (?:fit|match|belong)\b.*"
    r"|none of (?:the|these|them|those)\b.*|no (?:category|label|class) (?:applies|fits|matches)\b.*"
    r"|(?:the |my )?(?:final |correct |best )?(?:answer|label|category|class|classification)(?: is)?"  # and nothing more
    r"|neither of .*|neither .* nor .*|as an ai\b.*|(?:sorry|i apologi[sz]e)\b.*)$",
    re.IGNORECASE | re.DOTALL,
)
# Words that mean no label unless they are one: only where classes are known and these are not among them.
_VAGUE = {
    "none", "unknown", "unclear", "ambiguous", "indeterminate", "na", "nil", "undefined", "neither", "uncertain", "undetermined",
    "undecided", "refusal", "refused", "skip", "skipped",
}  # fmt: skip
_HEDGE = re.compile(
    r"\b(?:but|maybe|perhaps|probably|possibly|likely|my (?:best )?guess|i(?:'d| would) (?:say|guess|go with|lean)|if i had to)\b|:",
    re.IGNORECASE,
)
_SHORT_HEAD = re.compile(r"\W*(\w{1,2})(?:[).,:\]](?!\w)|\s+[-\u2013\u2014=]\s|\s+is\b)")
_SHORT_NAMES = re.compile(r"\W*\S{1,2}(?:\s*(?:,|/|or|and|\|)\s*\S{1,2})+\W*")
_FILLER = (
    r"an?|the|any|so|really|actually|quite|very|truly|clearly|necessarily|particularly|exactly|strictly|at all|about|be|is|are|it|it's|this"
    r"|that|to|of|as|in|for|under|seems?|appears?|looks?|like|think|believe|say|consider(?:ed)?|classif(?:y|ied)|label(?:l?ed)?|being"
    r"|related|mention|contain|express|describe|involve|concern|refer|ask(?:ing)?|talk(?:ing)?|fit|match|belong|count"
)
# At the end of what stands before a name: "is not", "I don't think that it is", "non".
_NEGATED = re.compile(
    r"(?:\b(?:not|no|non|never|nothing|neither|nor|without|hardly|lacks?|far from|rather than|instead of|except|other than"
    rf"|(?:any|every)thing but)|n't)\s+(?:(?:{_FILLER})\s+){{0,8}}(?:\S+\s+n?or\s+(?:an?\s+|the\s+)?){{0,4}}$",
    re.IGNORECASE,
)
# Behind a class: "ENTITY: no", "HUMAN? Yes".
_VERDICT = r"[\"'*`]*\s*[?:=\u2013\u2014-]+\s*[\"'*`]*(yes|no|true|false)\b"
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\w)")
_NUMBERED = re.compile(r"^\W*([A-Za-z]|\d{1,2})\s*[).:\]\-]\s*(\S.*)$", re.DOTALL)
_MAX_NUMBERED_LENGTH = 100  # characters of an answer that begins with the letter or number of an option
_MIN_NUMBERED = 3  # answers such as "B) Paris" that show what B means
_MIN_NUMBERED_SHARE = 0.9  # of them that must agree


NO_LABEL = {
    "unsure", "not sure", "i'm not sure", "don't know", "i don't know", "can't tell", "cannot tell", "?", "nan", "null", "<na>", "n/a", "#n/a",
}  # fmt: skip
"""Answers, in lower case, that name no label."""


class Meaning(NamedTuple):
    """The labels that an answer was mapped to."""

    answer: str
    labels: tuple[str, ...]  # none: no vote
    n_answers: int


@lru_cache(maxsize=4096)  # of the classes, above all, which every answer is compared with
def fold(text: str) -> str:
    """Return a text without decoration, a leading "Answer:" and differences of case. "C++" and "C", "3.5" and "3" stay apart."""
    stripped = text.strip(_DECORATION)
    without_prefix = _PREFIX.sub("", stripped, count=1).strip(_DECORATION)
    joined = re.sub(r"(?<=\w)[\s_\-/]+(?=\w)", " ", without_prefix or stripped)
    return re.sub(r"\s+", " ", joined).casefold()


def is_refusal(text: str) -> bool:
    """Return whether an answer says that no label applies or can be told, and names none after "but" or "maybe"."""
    stripped = text.replace("\u2019", "'").strip(_DECORATION + "?") or text.strip()
    return bool(_REFUSAL.match(stripped))


def is_no_vote(name: str, count: int, total: int) -> bool:
    """Return whether a name that is no known class, written `count` times in `total` answers, is no label.

    What may be a label, such as "none" or "cannot log in", is one where it is frequent.
    """
    if name.strip().casefold() in NO_LABEL:
        return True
    is_rare = total >= MIN_ANSWERS and count < MIN_VAGUE_SHARE * total
    return is_rare and is_refusal(name)


def find_classes(counts: Mapping[str, int]) -> list[str]:
    """Return the labels that frequent answers name, if some of them are written in several ways; else none.

    Each class is written as its most frequent form. Nothing is returned for plain labels, however rare some are.
    """
    total = sum(counts.values())
    if total < MIN_ANSWERS:
        return []
    names, texts = _group_answers(counts)
    _join_numbered(names, texts)
    threshold = max(MIN_CLASS_COUNT, MIN_CLASS_SHARE * total)
    classes: dict[str, str] = {}
    n_with_class = 0
    for key, spellings in names.items():
        is_vague = key in _VAGUE and spellings.total() < MIN_VAGUE_SHARE * total
        if spellings.total() >= threshold and not is_vague and not is_sentence(key):
            classes[key] = spellings.most_common(1)[0][0]
            n_with_class += spellings.total()
    _drop_misspellings(classes, names)
    _drop_combinations(classes)
    is_varied = any(len(texts[key]) > 1 for key in classes)
    if not is_varied or len(classes) < 2 or n_with_class < MIN_TOTAL_SHARE * total:
        return []
    return sorted(classes.values())


def _group_answers(counts: Mapping[str, int]) -> tuple[dict[str, Counter[str]], dict[str, set[str]]]:
    """Group answers that are the same when folded.

    Returns, by folded answer, how often each spelling without decoration occurs, and the texts that contain them, in lower case.
    """
    names: dict[str, Counter[str]] = {}
    texts: dict[str, set[str]] = {}
    for text, count in counts.items():
        answer = final_answer(text)
        name = _without_prefix(answer)
        if not name or is_refusal(answer):
            continue
        key = name  # "C" and "c" stay apart
        if len(name) > MAX_CASED_LENGTH:
            key = fold(answer)
        names.setdefault(key, Counter())[name] += count
        texts.setdefault(key, set()).add(text.strip().casefold())
    return names, texts


def _drop_misspellings(classes: dict[str, str], names: Mapping[str, Counter[str]]) -> None:
    """Drop classes in place that are a misspelling, which one model may repeat, of a much more frequent answer."""
    for key in list(classes):
        for other in names:
            is_rare_beside = MISSPELT_RATIO * names[key].total() <= names[other].total()
            if is_rare_beside and is_near_miss(key, other):
                del classes[key]
                break


def _drop_combinations(classes: dict[str, str]) -> None:
    """Drop classes in place that name several others, such as "cat or dog" beside cat and dog."""
    all_names = list(classes.values())
    for key in list(classes):
        others = [name for name in all_names if name != classes[key]]
        if len(named_classes(classes[key], others)) > 1:
            del classes[key]


def _join_numbered(names: dict[str, Counter[str]], texts: dict[str, set[str]]) -> None:
    """Count "2) cat" as "cat" in place, where that is written too, and drop "2" by itself, which then is no class."""
    numbers = set()
    for key in list(names):
        numbered = _NUMBERED.match(key)
        if numbered is None or fold(numbered[2]) not in names:
            continue
        plain = fold(numbered[2])
        numbers.add(numbered[1])
        texts[plain] |= texts.pop(key)
        names[plain][names[plain].most_common(1)[0][0]] += names.pop(key).total()
    for number in numbers & names.keys():
        del names[number]


def _without_prefix(text: str) -> str:
    """Return a text without decoration and a leading "Answer:"."""
    stripped = text.strip(_DECORATION)
    return _PREFIX.sub("", stripped, count=1).strip(_DECORATION) or stripped


@lru_cache(maxsize=4096)
def _pattern_of(name: str) -> re.Pattern[str]:
    """Return a pattern of a class as whole words; case is ignored from three letters on, and "_" and "-" are blanks."""
    words = [re.escape(word) for word in re.split(r"[\s_\-]+", name)]
    flexible = r"[\s_\-]+".join(words) if all(words) else re.escape(name)
    flags = re.IGNORECASE if len(name) >= 3 else re.NOFLAG
    return re.compile(rf"(?<![\w+#.\-]){flexible}(?![\w+#]|[.\-]\w)", flags)


def named_classes(text: str, classes: Sequence[str]) -> list[str]:
    """Return the classes that a text names as whole words, without those that it negates.

    Case is ignored for names of three letters or more; shorter ones, which are words of sentences too, are found only in
    lists such as "A or B". In a sentence that names a class as it is written, a name in other case is a word ("an entity").
    """
    return _named_and_negated(text, classes)[0]


def _named_and_negated(text: str, classes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the classes that a text names, in order, and those that it only negates.

    "It isn't toxic" names the class "not toxic", if there is one.
    """
    is_list_of_short_names = bool(_SHORT_NAMES.fullmatch(text.strip()))
    remaining = text
    first_position: dict[str, int] = {}
    as_written: set[str] = set()
    negated: list[str] = []
    for name in sorted(classes, key=len, reverse=True):  # the longest first: others may be part of it
        if len(name) < 3 and not is_list_of_short_names:
            continue
        pattern = _pattern_of(name)
        for match in pattern.finditer(remaining):
            if _is_negated(remaining, match.start()):
                opposite = _opposite(name, classes)
                if opposite is None:
                    negated.append(name)
                else:
                    first_position.setdefault(opposite, match.start())
                    as_written.add(opposite)
                continue
            first_position.setdefault(name, match.start())
            if match.group() == name:
                as_written.add(name)
        remaining = pattern.sub(lambda match: "\0" * len(match.group()), remaining)
    if as_written and is_sentence(text):
        for name in list(first_position):
            if name not in as_written and name != name.lower():
                del first_position[name]
    named = sorted(first_position, key=lambda name: first_position[name])
    only_negated = [name for name in dict.fromkeys(negated) if name not in first_position]
    return named, only_negated


def _is_negated(text: str, position: int) -> bool:
    """Return whether the name at a position of a text is negated by what stands before it."""
    start = max(0, position - _MAX_NEGATION_LENGTH)
    before = text[start:position].replace("\u2019", "'").rstrip("*_`\"' ")
    return bool(_NEGATED.search(before + " "))


def _opposite(name: str, classes: Sequence[str]) -> str | None:
    """Return the class that says "not", "non", "no" or "un" of another one, such as "not toxic" of "toxic"; None if none or several do."""
    squeezed = _squeeze(name)
    negations = {f"{prefix}{squeezed}" for prefix in ("not", "non", "no", "un")}
    opposites = [other for other in classes if _squeeze(other) in negations]
    if len(opposites) == 1:
        return opposites[0]
    return None


@lru_cache(maxsize=4096)
def _squeeze(text: str) -> str:
    """Return a folded text without blanks, so that "Sci/Tech" and "SciTech" are the same, and "R & D" is "r and d"."""
    return fold(text).replace(" ", "").replace("&", "and")


def _lacks_a_letter(word: str, name: str) -> bool:
    """Return whether a word is a class of five letters without one of them, such as "hapy" for "happy"."""
    if len(name) != MIN_LENGTH or len(word) != len(name) - 1 or word[0] != name[0]:
        return False
    return any(word == name[:i] + name[i + 1 :] for i in range(len(name)))


def _is_short_form(word: str, name: str) -> bool:
    """Return whether a word abbreviates a class ("pos" for "positive"), or adds an ending to it ("numerical" for "numeric")."""
    if word.endswith("ies") and name.endswith("y") and word[:-3] == name[:-1]:
        return True
    if not (word + name).replace(" ", "").isalpha():
        return False
    if len(word) < len(name):
        return len(word) >= MIN_PREFIX_LENGTH and name.startswith(word)
    return len(name) >= MIN_LENGTH and len(word) - len(name) <= 2 and word.startswith(name)


def _shares_stem(word: str, name: str) -> bool:
    """Return whether a word is another form of a class: "contradicts" of "contradiction"."""
    stem = 0
    while stem < min(len(word), len(name)) and word[stem] == name[stem]:
        stem += 1
    is_long = stem >= max(MIN_STEM_LENGTH, MIN_STEM_SHARE * len(name))
    return is_long and (word + name).isalpha() and len(word) - stem <= MAX_ENDING_LENGTH


def _short_name(text: str) -> str:
    """Return a name of one or two characters at the head ("B) Paris", "2 - neutral") or the end ("Option B") of a text."""
    head = _SHORT_HEAD.match(text)
    if head is not None:
        return head.group(1)
    words = text.strip(_DECORATION).split()
    if not words or len(words[-1]) > 2 or _NEGATED.search(" ".join(words[:-1]) + " "):
        return ""
    return words[-1]


def _stated_number(text: str, classes: Sequence[str]) -> str | None:
    """Return the class that is the only number in a text ("4 stars", "4 out of 5", "4.0"), where all classes are whole numbers."""
    if not all(name.isdecimal() for name in classes):
        return None
    largest = max(map(int, classes))
    if largest > 2:
        text = re.sub(rf"(?<=\d)\s*(?:/|out of|of)\s*{largest}(?![\w.]*\w)", "", text, flags=re.IGNORECASE)
    numbers = {float(number) for number in _NUMBER.findall(text)}
    matching = [name for name in classes if numbers == {float(name)}]
    return matching[0] if len(matching) == 1 else None


def numbered_classes(counts: Mapping[str, int], classes: Sequence[str]) -> dict[str, str]:
    """Return the class that each letter or number of an option stands for, as answers such as "B) Paris" show."""
    named: dict[str, Counter[str]] = {}
    for text, count in counts.items():
        numbered = _NUMBERED.match(text) if len(text) <= _MAX_NUMBERED_LENGTH else None
        if numbered is None or numbered[1] in classes:
            continue
        meaning = meaning_of(numbered[2], classes)
        if meaning is not None and len(meaning) == 1:
            named.setdefault(numbered[1], Counter())[meaning[0]] += count
    class_of = {}
    for number, class_counts in named.items():
        name, count = class_counts.most_common(1)[0]
        if count >= max(_MIN_NUMBERED, _MIN_NUMBERED_SHARE * class_counts.total()):
            class_of[number] = name
    return class_of


def class_of_number(text: str, numbered: Mapping[str, str]) -> str | None:
    """Return the class that an answer names by the letter or number of its option alone; None if it does not."""
    return numbered.get(_short_name(final_answer(text)))


def meaning_of(text: str, classes: Sequence[str]) -> list[str] | None:
    """Return the classes that an answer stands for; an empty list for a refusal, None if it cannot be told.

    An answer that only says which classes do not apply stands for all others.
    """
    stripped = text.strip(_DECORATION)
    if stripped in classes:
        return [stripped]
    accepted = _accepted_classes(text, classes)
    if accepted is not None:
        return accepted
    answer = final_answer(text)
    labels = _meaning_of_part(answer, classes)
    if labels is None:
        labels = _meaning_of_part(without_reasoning(text), classes)
    if labels is None:
        _, negated = _named_and_negated(without_reasoning(text), classes)
        if negated:
            labels = [name for name in classes if name not in negated]
    return labels


def _accepted_classes(text: str, classes: Sequence[str]) -> list[str] | None:
    """Return the classes that an answer such as "ENTITY: no, HUMAN: yes" accepts, or those that it does not reject; None for others."""
    if len(re.findall(_VERDICT, text, re.IGNORECASE)) < 2:
        return None
    verdicts: dict[str, bool] = {}
    for name in classes:
        verdict = re.search(_pattern_of(name).pattern + _VERDICT, text, re.IGNORECASE)
        if verdict is not None:
            verdicts[name] = verdict[1].casefold() in ("yes", "true")
    if len(verdicts) < 2:
        return None
    accepted = [name for name, is_accepted in verdicts.items() if is_accepted]
    return accepted or [name for name in classes if name not in verdicts]


def _meaning_of_part(text: str, classes: Sequence[str]) -> list[str] | None:
    """Return the classes that a text without reasoning stands for; an empty list for a refusal, None if it cannot be told."""
    stripped = text.strip(_DECORATION)
    if not stripped:
        return []
    if stripped in classes:
        return [stripped]
    same = _class_but_for_form(text, classes)
    if same is not None:
        return [same]
    complement = _complement(text, classes)
    if complement is not None:
        return complement
    number = _stated_number(text, classes)
    if number is not None:
        return [number]
    if is_refusal(text):
        return _classes_after_hedge(text, classes)
    named = named_classes(text, classes)
    if named:
        return named
    similar = _class_of_short_name(text, classes)
    if similar is None:
        similar = _similar_class(text, classes)
    if similar is not None:
        return [similar]
    if fold(text) in _VAGUE:
        return []
    return None


def _class_but_for_form(text: str, classes: Sequence[str]) -> str | None:
    """Return the only class that is a text but for case, decoration or, from three letters on, blanks; None if there is none."""
    folded = fold(text)
    same = [name for name in classes if fold(name) == folded]
    if len(same) == 1:
        return same[0]
    squeezed = _squeeze(text)
    same = [name for name in classes if _squeeze(name) == squeezed]
    if len(squeezed) >= MIN_PREFIX_LENGTH and len(same) == 1:
        return same[0]
    return None


def _complement(text: str, classes: Sequence[str]) -> list[str] | None:
    """Return what "non-toxic" or "untoxic" stands for: the class "not toxic", or all classes but "toxic"; None for other texts."""
    squeezed = _squeeze(text)
    for name in classes:
        if squeezed in (f"non{_squeeze(name)}", f"un{_squeeze(name)}"):
            opposite = _opposite(name, classes)
            if opposite:
                return [opposite]
            return [other for other in classes if other != name]
    return None


def _classes_after_hedge(text: str, classes: Sequence[str]) -> list[str]:
    """Return the classes that a refusal names after all: "I am not sure, but maybe ..."."""
    hedge = _HEDGE.search(text)
    if hedge is None:
        return []
    return named_classes(text[hedge.end() :], classes)


def _class_of_short_name(text: str, classes: Sequence[str]) -> str | None:
    """Return the class that is a name of one or two characters at the head or the end of a text; None if there is none."""
    short_name = _short_name(text)
    if short_name in classes:
        return short_name
    same = [name for name in classes if fold(name) == short_name.casefold()]
    if len(short_name) == 2 and len(same) == 1:  # "No, it is not" where a class is "no"
        return same[0]
    return None


def _similar_class(text: str, classes: Sequence[str]) -> str | None:
    """Return the only class that a text misspells, abbreviates or inflects; None if there is none."""
    folded = fold(text)
    for is_similar in (is_near_miss, _lacks_a_letter, _is_short_form, _shares_stem):
        similar = [name for name in classes if is_similar(folded, fold(name))]
        if len(similar) == 1:
            return similar[0]
    return None


def is_variant(text: str, label: str) -> bool:
    """Return whether a text is a label but for decoration, reasoning, case, one letter, the number of an option or a "yes" behind it."""
    answer = fold(final_answer(text))
    numbered = _NUMBERED.match(answer)
    if numbered is not None and fold(numbered[2]) == fold(label):
        return True
    verdict = re.search(_pattern_of(label).pattern + _VERDICT, text, re.IGNORECASE)
    if verdict is not None and verdict[1].casefold() in ("yes", "true"):
        return True
    return answer == fold(label) or is_near_miss(answer, fold(label))

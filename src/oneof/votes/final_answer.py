"""Find the part of a language model's answer that names the label: the end of its reasoning, a field of JSON, a line of its own."""

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

MAX_LABEL_WORDS = 4  # an answer of more words is a sentence, not a label

_NOUN = (
    r"(?:answer|label|category|class|classification|prediction|choice|option|verdict|decision|output|result|response|type"
    r"|antwort|kategorie|r\u00e9ponse|cat\u00e9gorie|respuesta|categor\u00eda|etiqueta|risposta|\u7b54\u6848|\u56de\u7b54|\u6807\u7b7e|\u7c7b\u522b)"
)
# "So the answer is X", "**Label:** X", "I would classify it as X": X reaches to the end of the line.
_STATED = re.compile(
    rf"(?<![a-z]){_NOUN}[*_`\"']*\s*(?:\s(?:is|would be|should be|must be)\b\s*:?|[:=\uff1a]|\u662f)[\s*_`\"']*(?P<noun>[^\n]*\S)"
    r"|\bi(?:'d| would)?\s+(?:choose|pick|select|say|go with)\b[\s:*_`\"']*(?P<choice>[^\n]*\S)"
    r"|\b(?:classify|classified|categori[sz]ed?|label+ed)\b[^\n.:]{0,60}?\bas\b[\s:*_`\"']*(?P<verb>[^\n]*\S)",
    re.IGNORECASE,
)
_THOUGHT = re.compile(r"<(think|thinking|reasoning|scratchpad)>.*?(?:</\1>|$)", re.IGNORECASE | re.DOTALL)
_TAGGED = re.compile(r"<(answer|label|category|class|output)>\s*(.*?)\s*</\1>", re.IGNORECASE | re.DOTALL)
_BOXED = re.compile(r"\\boxed\{\s*(?:\\text\w*\{)?([^{}]*)\}")
_FENCED = re.compile(r"```[\w-]*\s*\n?(.*?)```", re.DOTALL)
_OBJECT = re.compile(r"\{[^{}]*\}", re.DOTALL)
_END_OF_CLAUSE = re.compile(
    r"[.!?]\s+|\s+[-\u2013\u2014]+\s+|,?\s+(?:because|since|as it|as the|given that|which)\b", re.IGNORECASE
)
ANSWER_KEYS = (
    "label", "labels", "answer", "category", "class", "classification", "prediction", "choice", "choices", "output", "result", "response",
)  # fmt: skip


def is_sentence(text: str) -> bool:
    """Return whether an answer is too long for a label."""
    return len(text.split()) > MAX_LABEL_WORDS


def without_reasoning(text: str) -> str:
    """Return an answer without what stands in tags such as <think>."""
    return _THOUGHT.sub(" ", text).strip()


def final_answer(text: str) -> str:
    """Return the part of an answer that names the label, without reasoning, code fences and JSON around it.

    A label that is stated ("So the answer is X.") counts before one on a line of its own, or at the head of an explanation.
    """
    text = without_reasoning(text)
    for pattern, group in ((_TAGGED, 2), (_BOXED, 1)):
        matches = list(pattern.finditer(text))
        if matches:
            return matches[-1].group(group)
    from_json = _answer_in_json(text)
    if from_json is not None:
        return from_json
    fenced = _FENCED.findall(text)
    if fenced and fenced[-1].strip():
        text = fenced[-1].strip()
    stated = list(_STATED.finditer(text))
    if stated:
        named = [group for group in stated[-1].groups() if group]
        return _first_clause(named[0])
    if not is_sentence(text):
        return text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1:
        for line in (lines[0], lines[-1]):
            if not is_sentence(line) and not line.endswith(":"):
                return line
    clause = _first_clause(text)
    return text if is_sentence(clause) else clause


def _first_clause(text: str) -> str:
    """Return a text up to the end of its first clause, if a sentence follows; else as it is."""
    end = _END_OF_CLAUSE.search(text)
    if end is None or not end.start() or not is_sentence(text[end.start() :]):
        return text
    return text[: end.start()]


def _answer_in_json(text: str) -> str | None:
    """Return the label in the last JSON object or list of a text, or several joined by "or"; None if there is none."""
    sources = [text, *_FENCED.findall(text)[-1:], *_OBJECT.findall(text)[-1:]]
    for source in sources:
        value = parse_json(source)
        if isinstance(value, Mapping):
            keys = {str(key).strip().casefold(): key for key in value}
            names = [keys[name] for name in ANSWER_KEYS if name in keys]
            if not names:
                continue
            value = "" if value[names[0]] is None else value[names[0]]
        if isinstance(value, (str, int)):
            return str(value)
        if isinstance(value, list) and value and all(isinstance(element, str) for element in value):
            return " or ".join(value)
    return None


def parse_json(text: str) -> Any:
    """Return the object or list that a text is in JSON, or as Python writes it, in a code fence or not; None if it is none."""
    stripped = text.strip()
    fenced = _FENCED.fullmatch(stripped)
    if fenced is not None:
        stripped = fenced.group(1).strip()
    if stripped[:1] not in ("{", "[") or stripped[-1:] not in ("}", "]"):
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(stripped)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return value if isinstance(value, (dict, list)) else None
    return None

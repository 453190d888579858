"""Find the part of a language model's answer that names the label: the end of its reasoning, a field of JSON, a line of its own."""

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from oneof.storage.strict_json import lone_surrogate

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
_FIELD = re.compile(  # of JSON that was cut off
    r"[\"'](?:label|answer|category|class|classification|prediction|choice)[\"']\s*:\s*[\"']([^\"'\n]+)", re.IGNORECASE
)
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
    """Return an answer without the reasoning in tags such as <think>."""
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
    cut_off = _FIELD.search(text) if "{" in text else None
    if cut_off is not None:
        return cut_off[1]
    fenced = _FENCED.findall(text)
    if fenced and fenced[-1].strip():
        text = fenced[-1].strip()
    stated = list(_STATED.finditer(text))
    if stated:
        last = stated[-1]
        return _first_clause(last["noun"] or last["choice"] or last["verb"])
    if not is_sentence(text):
        return text
    line = _line_of_its_own(text)
    if line is not None:
        return line
    clause = _first_clause(text)
    return text if is_sentence(clause) else clause


def _line_of_its_own(text: str) -> str | None:
    """Return the first or else the last of several lines, if it is short enough for a label and introduces nothing."""
    lines = text.strip().splitlines()
    if len(lines) < 2:
        return None
    for line in (lines[0].strip(), lines[-1].strip()):
        if not is_sentence(line) and not line.endswith(":"):
            return line
    return None


def _first_clause(text: str) -> str:
    """Return a text up to the end of its first clause, if a sentence follows; else as it is."""
    end = _END_OF_CLAUSE.search(text)
    if end is None or not end.start():
        return text
    if not is_sentence(text[end.start() :]) and "because" not in end.group().casefold():
        return text
    return text[: end.start()]


def _answer_in_json(text: str) -> str | None:
    """Return the label in the last JSON object or list of a text, or several joined by "or"; None if there is none."""
    sources = [text, *_FENCED.findall(text)[-1:], *_OBJECT.findall(text)[-1:]]
    for source in sources:
        value = try_parse_json(source)
        if isinstance(value, Mapping):
            key = _answer_key(value)
            if key is None:
                continue
            value = value[key]
            if value is None:
                return ""
        if isinstance(value, (str, int)):
            return str(value)
        if isinstance(value, list) and value and all(isinstance(element, str) for element in value):
            return " or ".join(value)
    return None


def _answer_key(record: Mapping[Any, Any]) -> Any:
    """Return the key of a record that comes first in `ANSWER_KEYS`, in any case; None if there is none."""
    key_of_name = {str(key).strip().casefold(): key for key in record}
    for name in ANSWER_KEYS:
        if name in key_of_name:
            return key_of_name[name]
    return None


def try_parse_json(text: str) -> Any:
    """Parse a text that is an object or a list in JSON, or as Python writes it, in a code fence or not; return None for other texts."""
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
        if not isinstance(value, (dict, list)) or lone_surrogate(value, stripped) is not None:
            return None
        return value
    return None

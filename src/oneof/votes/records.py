"""Flatten votes in JSON objects: nested votes, distributions over labels, and exports of Argilla, Prodigy and distilabel.

Every form becomes a list of `Answer`: the labels that one annotator gave one item, with weights.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from oneof.data.files.source import is_number
from oneof.storage.printable import shortened
from oneof.votes.ballots import Answers, Votes, collect
from oneof.votes.final_answer import try_parse_json
from oneof.votes.spelling import Spelling

ITEM_NAMES = ("item", "id", "item_id", "example_id", "sample_id", "task_id", "question_id", "uid", "idx", "index")
ANNOTATOR_NAMES = (
    "annotator", "model", "model_name", "worker", "worker_id", "annotator_id", "rater", "coder", "user", "user_id", "llm",
)  # fmt: skip
LABEL_NAMES = (
    "label", "answer", "labels", "vote", "response", "prediction", "category", "choice", "generation", "output", "value",
    "choices", "probabilities", "probs", "logprobs", "top_logprobs", "scores", "ranking", "ranked",
)  # fmt: skip
RANKING_NAMES = ("ranking", "ranked")  # of lists whose first label counts most
VOTES_NAMES = ("votes", "answers", "annotations", "judgments", "responses")
# Texts, which identify an item where no id does.
TEXT_NAMES = ("text", "instruction", "input", "prompt", "question", "sentence", "message")
# Columns of distilabel's models and answers: of single rows, and as `GroupColumns` names them by default, in older versions and in its examples.
MODEL_NAMES = ("model_name", "model_names", "grouped_model_name", "merged_model_name", "generation_models")
GENERATION_NAMES = (
    *LABEL_NAMES, "generations", "grouped_labels", "grouped_generation", "merged_labels", "merged_generation",
)  # fmt: skip
UNCLASSIFIED = "unclassified"  # the answer of distilabel's text classification where no label applies
MIN_PROBABILITY = 0.05  # of a label in a distribution, relative to the most probable one: others are not votes
_PROBABILITY_NAMES = ("probability", "prob", "score", "confidence", "logprob")


class Keys(NamedTuple):
    """Names of the keys to read, and how lists are read."""

    item: str
    annotator: str
    label: str
    confidence: str | None = None
    ranked: bool = False  # the first label of a list counts most; False: all labels of a list are equally plausible


class Answer(NamedTuple):
    """The labels that one annotator gave one item."""

    item: Any
    annotator: str
    labels: list[tuple[str, float]]  # texts and weights; empty: no vote
    place: str  # where it is in the source, for messages


def find_name(wanted: str, alternatives: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the wanted name if it is there; if it is the default, the first alternative that is; else None.

    Case does not matter for alternatives, nor whether words are joined by "_": "Question ID" is "question_id".
    """
    if wanted in names:
        return wanted
    if wanted == alternatives[0]:
        by_folded_name = {re.sub(r"[\s\-]+", "_", name.strip()).casefold(): name for name in reversed(names)}
        for alternative in alternatives:
            if alternative in names:
                return alternative
        for alternative in alternatives:
            if alternative in by_folded_name:
                return by_folded_name[alternative]
    return None


def collect_answers(source: str, answers: Sequence[Answer], spelling: Spelling) -> Votes:
    """Make votes of answers; raise ValueError if there are none."""
    items = []
    annotators = []
    texts = []
    weights = []
    places = []
    for answer in answers:
        for text, weight in answer.labels:
            items.append(answer.item)
            annotators.append(answer.annotator.strip())
            texts.append(text)
            weights.append(weight)
            places.append(answer.place)
    if not texts:
        raise ValueError(f"votes must have at least one row; {source} has no answers.")
    confidence = None
    if any(weight != 1.0 for weight in weights):
        confidence = np.array(weights)
    votes = collect(
        Answers(
            source=source,
            item=_id_array(items).dictionary_encode(),
            annotator=pa.array(annotators, pa.string()).dictionary_encode(),
            text=pa.array(texts, pa.string()),
            place=lambda i: places[i],
            confidence=confidence,
        ),
        spelling,
    )
    n_without_text = len({str(answer.item) for answer in answers}) - len({str(key) for key in items})
    return replace(votes, unanswered=votes.unanswered + n_without_text)


def _id_array(ids: list[Any]) -> Any:
    """Return ids as whole numbers if all are, else as text."""
    are_whole_numbers = all(isinstance(key, int) and not isinstance(key, bool) for key in ids)
    if are_whole_numbers and all(abs(key) < 2**63 for key in ids):
        return pa.array(ids, pa.int64())
    return pa.array([_scalar_text(key) for key in ids], pa.string())


def _scalar_text(value: Any) -> str:
    """Return a text, a number or a truth value as Arrow and JSON write it: 1.0 becomes 1."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, default=str)


def parse_answer(value: Any, keys: Keys, where: str) -> list[tuple[str, float]]:
    """Return the labels that a value names, with weights of which the largest is 1; none for null, "" or an empty list.

    A list is a set of plausible labels, or a ranking. An object maps labels to probabilities or log-probabilities.
    """
    if _is_missing(value):
        return []
    if isinstance(value, Mapping):
        return _parse_object(value, keys, where)
    if not isinstance(value, (list, tuple)):
        return [(_scalar_text(value), 1.0)]
    if value and all(isinstance(element, Mapping) for element in value):
        return _parse_objects(value, keys, where)
    labels = []
    for element in value:
        if isinstance(element, (Mapping, list, tuple)) or element != element:
            raise ValueError(_bad_answer(keys.label, value, where))
        if not _is_missing(element):
            labels.append(_scalar_text(element))
    if keys.ranked:
        return [(label, 1 / rank) for rank, label in enumerate(labels, start=1)]
    return [(label, 1.0) for label in labels]


def parsed_text(text: str, separator: str | None) -> Any:
    """Return the answer that a text holds in JSON; else the text, or its parts if there is a separator."""
    value = try_parse_json(text)
    if value is not None:
        try:
            parse_answer(value, Keys("", "", ""), "")
        except ValueError:
            return text
        return value
    if separator:
        return [part.strip() for part in text.split(separator)]
    return text


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or (isinstance(value, str) and not value.strip())


def _bad_answer(key: str, value: Any, where: str) -> str:
    preview = shortened(json.dumps(value, ensure_ascii=False, default=str))
    allowed = "text, numbers or a list of them, or an object of probabilities or log-probabilities"
    return f"{key!r} must hold {allowed}; {where} has {preview}. Write the label's name, or leave it out."


def _parse_object(value: Mapping[str, Any], keys: Keys, where: str) -> list[tuple[str, float]]:
    """Parse {label: probability}, or an object that holds the label among other keys."""
    name = find_name("label", LABEL_NAMES, list(value))
    if name is not None and isinstance(value[name], (str, int, list, Mapping)):
        return parse_answer(value[name], keys, where)
    scores = {}
    for label, score in value.items():
        if score is not None:
            scores[label] = score
    if scores and all(isinstance(score, str) and is_number(score) for score in scores.values()):
        scores = {label: float(score) for label, score in scores.items()}
    are_numbers = all(isinstance(score, (int, float)) and not isinstance(score, bool) for score in scores.values())
    if scores and are_numbers:
        return _parse_distribution(scores, keys, value, where)
    if name is not None and value[name] is None:
        return []
    if "content" in value:  # log-probabilities as OpenAI's interface returns them
        return parse_answer(value["content"], keys, where)
    raise ValueError(_bad_answer(keys.label, value, where))


def _parse_objects(values: Sequence[Mapping[str, Any]], keys: Keys, where: str) -> list[tuple[str, float]]:
    """Parse a list of {label, rank} or {label, probability}, or the tokens of an answer as OpenAI's interface returns them."""
    if all("token" in value and "top_logprobs" in value for value in values):
        if len(values) > 1:
            return [("".join(str(value["token"]) for value in values), 1.0)]
        if values[0]["top_logprobs"]:
            return parse_answer(values[0]["top_logprobs"], keys, where)
        return [(str(values[0]["token"]), 1.0)]
    scores: dict[str, float] = {}
    for value in values:
        label_name = find_name("label", (*LABEL_NAMES, "token"), list(value))
        score_name = find_name("probability", (*_PROBABILITY_NAMES, "rank"), list(value))
        if label_name is None or score_name is None or not isinstance(value[score_name], (int, float)):
            raise ValueError(_bad_answer(keys.label, list(values), where))
        label = _scalar_text(value[label_name])
        if score_name == "rank":
            scores[label] = 1 / max(value[score_name], 1)
        elif score_name == "logprob":
            scores[label] = math.exp(min(value[score_name], 0))
        else:
            scores[label] = value[score_name]
    return _parse_distribution(scores, keys, values, where)


def _parse_distribution(scores: Mapping[str, float], keys: Keys, value: Any, where: str) -> list[tuple[str, float]]:
    """Return labels with weights relative to the most probable; log-probabilities are recognised by no value above 0."""
    highest = max(scores.values())
    lowest = min(scores.values())
    if not (math.isfinite(highest) and lowest == lowest):
        raise ValueError(_bad_answer(keys.label, value, where))
    if highest <= 0 and lowest < 0:
        weights = {label: math.exp(score - highest) for label, score in scores.items()}
    elif lowest < 0:
        preview = shortened(json.dumps(value, ensure_ascii=False, default=str))
        rule = f"{keys.label!r} must hold probabilities of 0 or more, or log-probabilities of 0 or less"
        raise ValueError(f"{rule}; {where} has both: {preview}. Correct it, or leave it out.")
    elif highest == 0:
        return []
    else:
        weights = {label: score / highest for label, score in scores.items()}
    labels = []
    for label, weight in weights.items():
        if weight >= MIN_PROBABILITY:
            labels.append((label, weight))
    return labels


def _weighted(
    labels: list[tuple[str, float]], record: Mapping[str, Any], keys: Keys, where: str
) -> list[tuple[str, float]]:
    """Multiply the weights by the confidence that a record holds."""
    if keys.confidence is None:
        return labels
    confidence = record.get(keys.confidence)
    is_number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    if not is_number or not 0 <= confidence <= 1:  # type: ignore[operator]
        got = f"{where} has {confidence!r}"
        raise ValueError(
            f"column {keys.confidence!r} must hold a number in [0, 1]; {got}. Correct it, or leave it out."
        )
    return [(label, weight * confidence) for label, weight in labels]  # type: ignore[operator]


def _item_of(record: Mapping[str, Any], name: str | None, where: str) -> Any:
    if name is None or _is_missing(record.get(name)) or isinstance(record[name], (list, Mapping)):
        raise ValueError(
            f"a record must hold the id of its item; {where} has none in {name!r}. Name its key with --item."
        )
    return record[name]


class Flattened(NamedTuple):
    """Answers, the keys of the records that were used, and remarks for the user."""

    answers: list[Answer]
    used: set[str]
    remarks: list[str]


PlacedRecords = Sequence[tuple[str, dict[str, Any]]]  # records, each with its place


def keys_of(records: PlacedRecords) -> list[str]:
    """Return the keys of all records, each once, in the order in which they occur."""
    keys: dict[str, None] = {}
    for _, record in records:
        keys.update(dict.fromkeys(record))
    return list(keys)


def flatten_long(records: PlacedRecords, keys: Keys) -> Flattened:
    """Flatten records {item, annotator, label}."""
    answers = []
    for where, record in records:
        key = _item_of(record, keys.item, where)
        annotator = record.get(keys.annotator)
        if _is_missing(annotator):
            raise ValueError(
                f"column {keys.annotator!r} must hold a value in every row; {where} has none. Fill or drop it."
            )
        labels = _weighted(parse_answer(record.get(keys.label), keys, where), record, keys, where)
        answers.append(Answer(key, _scalar_text(annotator), labels, where))
    used = {keys.item, keys.annotator, keys.label, keys.confidence or keys.item}
    return Flattened(answers, used, [])


def flatten_wide(records: PlacedRecords, keys: Keys, columns: Sequence[str]) -> Flattened:
    """Flatten records {item, a key per annotator}."""
    answers = []
    for where, record in records:
        key = _item_of(record, keys.item, where)
        for column in columns:
            place = f"{where}, {column!r}"
            labels = parse_answer(record.get(column), keys._replace(label=column), place)
            answers.append(Answer(key, column, labels, place))
    return Flattened(answers, {keys.item, *columns}, [])


def votes_key(records: PlacedRecords) -> str | None:
    """Return the key of nested votes: the first of `VOTES_NAMES` that holds objects or lists in every record that has it.

    Raise ValueError if some records have votes of that form under the key and others a text.
    """
    for name in VOTES_NAMES:
        present = [(where, record[name]) for where, record in records if record.get(name) is not None]
        others = [(where, votes) for where, votes in present if not isinstance(votes, (dict, list))]
        if present and not others:
            return name
        if others and any(isinstance(votes, dict) for _, votes in present):
            where, votes = others[0]
            got = f"{where} has {shortened(json.dumps(votes, ensure_ascii=False, default=str))}"
            raise ValueError(
                f"{name!r} must hold the votes of every record as an object or a list; {got}. Correct or drop it."
            )
    return None


def flatten_nested(records: PlacedRecords, keys: Keys, name: str) -> Flattened:
    """Flatten records {item, votes: {annotator: answer}} or {item, votes: [{annotator, label}]}."""
    answers: list[Answer] = []
    has_anonymous = False
    for where, record in records:
        key = _item_of(record, keys.item, where)
        place = f"{where}, item {key}"
        votes = record.get(name) or {}
        if isinstance(votes, dict):
            for annotator, value in votes.items():
                vote_place = f"{place}, {annotator!r}"
                answers.append(Answer(key, annotator, parse_answer(value, keys, vote_place), vote_place))
            continue
        for position, vote in enumerate(votes, start=1):
            if not isinstance(vote, dict):
                has_anonymous = True
                answers.append(Answer(key, f"annotator {position}", parse_answer(vote, keys, place), place))
                continue
            annotator_name = find_name(keys.annotator, ANNOTATOR_NAMES, list(vote))
            label_name = find_name(keys.label, LABEL_NAMES, list(vote))
            if annotator_name is None or label_name is None:
                got = f"{place} has {', '.join(vote) or 'nothing'}"
                remedy = "Name them with --annotator and --label."
                raise ValueError(f"{name!r} must hold objects with annotator and label; {got}. {remedy}")
            labels = parse_answer(vote[label_name], keys._replace(label=label_name), place)
            labels = _weighted(labels, vote, keys, place)
            answers.append(Answer(key, _scalar_text(vote[annotator_name]), labels, place))
    remarks = []
    if has_anonymous:
        remarks.append(
            f"{name!r} holds labels without names: the first of each list is taken for annotator 1, and so on."
        )
    return Flattened(answers, {keys.item, name}, remarks)


def is_prodigy(records: PlacedRecords) -> bool:
    """Return whether records are Prodigy's: tasks that were accepted, rejected or ignored."""
    for _, record in records:
        has_decision = record.get("answer") in ("accept", "reject", "ignore")
        has_hash = "_input_hash" in record or "_task_hash" in record
        if not has_decision or not has_hash:
            return False
    return True


def flatten_prodigy(records: PlacedRecords, keys: Keys) -> Flattened:
    """Flatten tasks of Prodigy: choices (`accept`), or one label per task that was accepted or rejected.

    Of an annotator's tasks on one item, accepted labels count; where all were rejected, the vote is for every label that was not.
    """
    answers = []
    decided: dict[tuple[str, str], _Decisions] = {}
    n_ignored = 0
    for where, record in records:
        meta = record.get("meta")
        if not isinstance(meta, dict):
            meta = {}
        ids = (record.get(keys.item), record.get("id"), meta.get("id"), record.get("_input_hash"))
        key = _first_value(*ids, record.get("text"), record.get("_task_hash"))
        annotator = str(_first_value(record.get("_annotator_id"), record.get("_session_id"), "annotator"))
        if record["answer"] == "ignore" or (record["answer"] == "reject" and "accept" in record):
            n_ignored += 1
            answers.append(Answer(key, annotator, [], where))
        elif "accept" in record:
            chosen = _texts_of_options(record["accept"], record.get("options"))
            answers.append(Answer(key, annotator, parse_answer(chosen, keys._replace(label="accept"), where), where))
        else:
            decisions = decided.setdefault((_scalar_text(key), annotator), _Decisions(key, where, [], []))
            if not _is_missing(record.get("label")):
                decisions.add(record["answer"], _scalar_text(record["label"]))
    all_labels: set[str] = set()
    for decisions in decided.values():
        all_labels.update(decisions.accepted, decisions.rejected)
    for (_, annotator), decisions in decided.items():
        votes = [(label, 1.0) for label in decisions.voted_labels(all_labels)]
        answers.append(Answer(decisions.item, annotator, votes, decisions.place))
    n_rejected = sum(decisions.only_rejects for decisions in decided.values())
    remarks = ["The file is read as an export of Prodigy."]
    if n_ignored:
        remarks.append(f"{n_ignored:,} tasks that were ignored, or rejected as a whole, are not counted as votes.")
    if n_rejected:
        remarks.append(f"{n_rejected:,} answers that only reject labels are votes for every other label.")
    used = {keys.item, "id", "meta", "answer", "accept", "label", "options"}
    for name in keys_of(records):
        if name.startswith("_"):  # Prodigy's own keys
            used.add(name)
    return Flattened(answers, used, remarks)


class _Decisions(NamedTuple):
    """The labels of one item that one annotator of Prodigy accepted and rejected, each in a task of its own."""

    item: Any
    place: str
    accepted: list[str]
    rejected: list[str]

    def add(self, answer: str, label: str) -> None:
        """Add the answer to a task, "accept" or "reject", whose label this is."""
        if answer == "accept":
            self.accepted.append(label)
        else:
            self.rejected.append(label)

    @property
    def only_rejects(self) -> bool:
        """Return whether labels were rejected and none was accepted."""
        return bool(self.rejected) and not self.accepted

    def voted_labels(self, all_labels: set[str]) -> list[str]:
        """Return the labels that were accepted; where there are only rejected ones, all others."""
        if not self.only_rejects:
            return self.accepted
        others = sorted(all_labels - set(self.rejected))
        # In a file of one label alone, to reject it is the other answer.
        return others or [f"not {self.rejected[0]}"]


def _first_value(*values: Any) -> Any:
    """Return the first value that is not missing; None if all are."""
    for value in values:
        if not _is_missing(value):
            return value
    return None


def _texts_of_options(chosen: Any, options: Any) -> Any:
    """Return the texts of chosen options whose ids are numbers; ids that are text are labels themselves."""
    if not isinstance(chosen, list) or not isinstance(options, list):
        return chosen
    text_of_id = {}
    for option in options:
        if isinstance(option, Mapping) and isinstance(option.get("id"), (int, float)) and option.get("text"):
            text_of_id[option["id"]] = option["text"]
    texts = []
    for element in chosen:
        if isinstance(element, (int, float)):
            element = text_of_id.get(element, element)
        texts.append(element)
    return texts


def is_argilla(records: PlacedRecords) -> bool:
    """Return whether records are Argilla's: nested as it stores them, or flat with keys such as "label.responses"."""
    if any(is_flat_argilla(record) for _, record in records):
        return True
    for _, record in records:
        if "fields" not in record or not ("responses" in record or "suggestions" in record):
            return False
    return True


def is_flat_argilla(names: Iterable[str]) -> bool:
    """Return whether names are those of Argilla's flat records, such as "label.responses"."""
    return any(name.endswith((".responses", ".suggestion")) for name in names)


def flatten_argilla(records: PlacedRecords, keys: Keys, source: str) -> Flattened:
    """Flatten responses of people and suggestions of models to one question of Argilla."""
    responses = []
    for where, record in records:
        key = _first_value(record.get(keys.item), record.get("id"), record.get("_server_id"))
        if key is None:
            raise ValueError(f"a record of Argilla must have an id; {where} has none. Name its key with --item.")
        for name, annotator, value in _argilla_answers(record, where):
            responses.append((where, key, name, annotator, value))
    questions = sorted({name for _, _, name, _, _ in responses})
    if keys.label in questions:
        question = keys.label
    elif len(questions) == 1:
        question = questions[0]
    else:
        got = f"{source} has answers to {', '.join(questions) or 'none'}"
        raise ValueError(f"one question of an Argilla export must give the votes; {got}. Name it with --label.")
    answers = []
    for where, key, name, annotator, value in responses:
        if name == question:
            labels = parse_answer(value, keys._replace(label=name), where)
            answers.append(Answer(key, annotator, labels, where))
    remarks = [
        f"The file is read as an export of Argilla: answers to {question!r}; suggestions are votes of their agents."
    ]
    has_states = any("responses" not in record or _has_states(record["responses"]) for _, record in records)
    if not has_states:
        remarks.append(
            "The file does not say which responses were submitted: drafts and discarded responses count too."
        )
    used = {keys.item, "id", "_server_id", "responses", "suggestions", "status"}
    for name in keys_of(records):
        if name.startswith(f"{question}."):
            used.add(name)
    return Flattened(answers, used, remarks)


def _argilla_answers(record: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, Any]]:
    """Yield question, annotator and value of each response that was submitted, and of each suggestion."""
    yield from _argilla_responses(record, where)
    yield from _argilla_suggestions(record, where)
    yield from _flat_argilla_answers(record, where)


def _argilla_responses(record: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the submitted responses of a nested record, which are listed by question or by person."""
    responses = record.get("responses") or []
    if isinstance(responses, dict):
        for question, question_responses in responses.items():
            for response in _objects_in(question_responses, "responses", where):
                if _is_submitted(response.get("status")):
                    yield question, str(response.get("user_id") or "annotator"), response.get("value")
    else:
        for response in _objects_in(responses, "responses", where):
            if not _is_submitted(response.get("status")):
                continue
            values = response.get("values") or {}
            if not isinstance(values, dict):
                raise _bad_argilla("responses", "values by question", values, where)
            for question, answer in values.items():
                if not isinstance(answer, dict):
                    raise _bad_argilla("responses", "an object with a value for each question", answer, where)
                yield question, str(response.get("user_id") or "annotator"), answer.get("value")


def _argilla_suggestions(record: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the suggestions of a nested record, which are by question or a list."""
    suggestions = record.get("suggestions") or []
    if isinstance(suggestions, dict):
        for question, suggestion in suggestions.items():
            if suggestion is None:
                continue
            if not isinstance(suggestion, dict):
                raise _bad_argilla("suggestions", "an object for each question", suggestion, where)
            yield question, _agent(suggestion), suggestion.get("value")
    else:
        for suggestion in _objects_in(suggestions, "suggestions", where):
            yield str(suggestion.get("question_name")), _agent(suggestion), suggestion.get("value")


def _agent(suggestion: Mapping[str, Any]) -> str:
    return f"model:{suggestion.get('agent') or 'unnamed'}"


def _objects_in(values: Any, name: str, where: str) -> list[dict[str, Any]]:
    """Return the elements of a list in a record of Argilla, which may be null; raise ValueError if one is no object."""
    if values is None:
        return []
    if not isinstance(values, list):
        raise _bad_argilla(name, "a list of objects", values, where)
    for value in values:
        if not isinstance(value, dict):
            raise _bad_argilla(name, "objects", value, where)
    return values


def _bad_argilla(name: str, requirement: str, value: Any, where: str) -> ValueError:
    """Return an error on what a key of a record of Argilla holds."""
    preview = shortened(json.dumps(value, ensure_ascii=False, default=str))
    return ValueError(
        f"{name!r} of a record of Argilla must hold {requirement}; {where} has {preview}. Correct it, or leave it out."
    )


def _flat_argilla_answers(record: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the submitted responses and the suggestions of a flat record, such as those in "label.responses"."""
    for name, value in record.items():
        question = name.rpartition(".")[0]
        if name.endswith(".responses") and value is not None:
            responses = _list_in(record, name, None, where)
            users = _list_in(record, f"{name}.users", len(responses), where)
            statuses = _list_in(record, f"{name}.status", len(responses), where)
            for response, user, status in zip(responses, users, statuses, strict=True):
                if _is_submitted(status):
                    yield question, str(user or "annotator"), response
        elif name.endswith(".suggestion") and value is not None:
            yield question, f"model:{record.get(f'{name}.agent') or 'unnamed'}", value


def _list_in(record: Mapping[str, Any], name: str, length: int | None, where: str) -> list[Any]:
    """Return a list in a flat record of Argilla, with nulls where the record has none; raise ValueError for another length."""
    values = record.get(name)
    if not values and length is not None:
        return [None] * length
    if not isinstance(values, list):
        raise _bad_argilla(name, "a list", values, where)
    if length is not None and len(values) != length:
        raise _bad_argilla(name, f"a list of {length} elements, one for each response", values, where)
    return values


def _has_states(responses: Any) -> bool:
    """Return whether a response of a record of Argilla has a status."""
    if isinstance(responses, dict):
        all_responses: list[Any] = []
        for question_responses in responses.values():
            all_responses.extend(question_responses or ())
        responses = all_responses
    return any("status" in response for response in responses or ())


def _is_submitted(status: Any) -> bool:
    return status in (None, "submitted")


def is_distilabel(records: PlacedRecords) -> bool:
    """Return whether records are rows of a distilabel pipeline: with its metadata, or with lists of models and of their answers."""
    for _, record in records:
        models = [record[name] for name in MODEL_NAMES if name in record]
        if not models:
            return False
        if "distilabel_metadata" not in record and not _has_list_of_answers(record, models[0]):
            return False
    return True


def _has_list_of_answers(record: Mapping[str, Any], models: Any) -> bool:
    """Return whether models are a list, and so is the answer of each."""
    answers = [record[name] for name in GENERATION_NAMES if name in record]
    return isinstance(models, list) and any(isinstance(texts, list) and len(texts) == len(models) for texts in answers)


def flatten_distilabel(records: PlacedRecords, keys: Keys, source: str) -> Flattened:
    """Flatten rows of distilabel: an answer per row, or grouped lists of model names and answers."""
    names = keys_of(records)
    item = find_name(keys.item, ITEM_NAMES, names) or find_name(TEXT_NAMES[0], TEXT_NAMES, names)
    annotator = next(name for name in MODEL_NAMES if name in names)
    label = find_name(keys.label, GENERATION_NAMES, names)
    if label is None:
        raise ValueError(f"column {keys.label!r} must be in {source}; it has {', '.join(names)}. Name it with --label.")
    keys = keys._replace(label=label)
    answers = []
    n_unclassified = 0
    for where, record in records:
        key = _item_of(record, item, where)
        models = record.get(annotator)
        values = record.get(label)
        if not isinstance(models, list):
            models = [models]
            values = [values]
        if not isinstance(values, list) or len(values) != len(models):
            got = f"{where} has {len(models)} models"
            raise ValueError(
                f"{label!r} must hold an answer of each model in {annotator!r}; {got}. Correct or drop it."
            )
        for model, value in zip(models, values, strict=True):
            labels = parse_answer(value, keys, where)
            classified = []
            for text, weight in labels:
                if text.strip().casefold() != UNCLASSIFIED:
                    classified.append((text, weight))
            if len(classified) < len(labels):
                n_unclassified += 1
            answers.append(Answer(key, str(model), classified, where))
    remarks = [f"The file is read as rows of distilabel: item {item!r}, annotator {annotator!r}, label {label!r}."]
    if n_unclassified:
        remarks.append(f"{n_unclassified:,} answers 'Unclassified', distilabel's word for no label, are not votes.")
    return Flattened(answers, {str(item), label, annotator, "distilabel_metadata"}, remarks)

"""Write a run as a folder to share: the model, without the training rows, and a model card that says what it can and cannot do.

The folder has what `oneof.Predictor` needs, and the README.md that the Hugging Face Hub shows.
"""

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from oneof.data.column_uses import summary_lines
from oneof.ensemble.accuracy import AccuracyEstimate
from oneof.runs.folder import METADATA, Run, write_json
from oneof.runs.summary import label_accuracy_in_words, warning_about_lost_labels
from oneof.storage.files import atomic_folder
from oneof.storage.printable import one_line, plural

CARD = "README.md"
MODEL_FILES = ("model.json", "model.safetensors")
# Values in run.json of a shared folder that replace paths and settings.
_PRIVATE: dict[str, Any] = {"command": [], "asked": {}}
_MAX_CLASSES = 100  # in the table of the card
_MAX_COLUMNS = 12  # that the card names
_MARKDOWN = re.compile(r"([\\`*_\[\]()#|<>!~$])")


def write_model_folder(run: Run, folder: Path) -> None:
    """Write the model with its card to a new folder, which can be shared: it has no rows, paths or names of annotators."""
    run.model.check_predicts()
    card = model_card(run)
    with atomic_folder(folder) as unfinished:
        write_model_files(run, unfinished)
        (unfinished / CARD).write_text(card, encoding="utf-8")


def write_model_files(run: Run, folder: Path) -> None:
    """Write what a prediction needs into a folder that exists."""
    for name in MODEL_FILES:
        shutil.copyfile(run.folder / name, folder / name)
    metadata = {**run.metadata, **_PRIVATE, "file": Path(run.metadata["file"]).name}
    metadata.pop("people", None)
    write_json(metadata, folder / METADATA)


def model_card(run: Run) -> str:
    """Return the model card of a run, in Markdown with the header of the Hugging Face Hub."""
    sections = [
        _header(run),
        _what_it_is(run),
        _how_to_use(run),
        _classes(run),
        _data(run),
        _accuracy(run),
        _limits(run),
    ]
    return "\n".join(sections)


def _header(run: Run) -> str:
    lines = ["---", "library_name: oneof", f"pipeline_tag: {_task(run)}", "tags:"]
    for tag in ("partial-label-learning", "candidate-labels", "weak-supervision"):
        lines.append(f"- {tag}")
    lines += ["---", ""]
    return "\n".join(lines)


def _task(run: Run) -> str:
    """Return the Hub's name of the task."""
    roles = run.model.encoding.roles
    if roles.image:
        return "image-classification"
    if roles.text and not roles.features and not roles.categories:
        return "text-classification"
    return "tabular-classification"


def _what_it_is(run: Run) -> str:
    metadata = run.metadata
    source = "candidate labels"
    if metadata.get("people"):
        source = "votes of annotators"
    name = _escaped(Path(metadata["file"]).stem)
    return f"""# A classifier trained on {name}

It gives one of {len(metadata["classes"]):,} labels with a probability. It was trained by oneof {metadata["oneof"]} on {source}: several labels per row, of
which one is right. No row had to have a known true label.
"""


def _how_to_use(run: Run) -> str:
    roles = run.model.encoding.roles
    columns = [*roles.features, *roles.non_numeric]
    names = [f"`{_without_backticks(name)}`" for name in columns[:_MAX_COLUMNS]]
    listed = ", ".join(names)
    if len(columns) > _MAX_COLUMNS:
        listed += f" and {len(columns) - _MAX_COLUMNS:,} more"
    return f"""## Use

    pip install oneof

```python
import oneof
import pandas as pd

predictor = oneof.Predictor("FOLDER")  # this folder, for example from huggingface_hub.snapshot_download(...)
predictor(pd.read_csv("new.csv"))      # label and probability of every row
```

A row needs the {plural("column", len(columns))} {listed}; missing cells are allowed. The files hold no pickle: opening them runs no code.
{_embedding_models(run)}"""


def _embedding_models(run: Run) -> str:
    """Return a sentence on how to allow the pretrained models that embed texts or pictures; empty if there are none."""
    models = sorted({embedded.model for embedded in run.model.encoding.embedded})
    if not models:
        return ""
    names = [_without_backticks(model) for model in models]
    return f"Texts or pictures are embedded by pretrained models, which you have to allow: `oneof.Predictor(FOLDER, embedding_models={names!r})`.\n"


def _classes(run: Run) -> str:
    classes = run.metadata["classes"]
    counts = Counter(run.decided["label"].to_pylist())
    lines = ["## Classes", "", "| label | training rows with this label |", "|---|---:|"]
    for label in classes[:_MAX_CLASSES]:
        lines.append(f"| {_escaped(label)} | {counts[label]:,} |")
    lines.append("")
    if len(classes) > _MAX_CLASSES:
        lines += [f"The other {len(classes) - _MAX_CLASSES:,} are in `{METADATA}`.", ""]
    return "\n".join(lines)


def _data(run: Run) -> str:
    metadata = run.metadata
    sizes = pc.list_value_length(run.purified["original"])
    lines = [
        f"{metadata['n']:,} rows, from which {metadata['d']:,} features were made",
        f"{pc.mean(sizes).as_py():.2f} candidate labels per row on average; {pc.sum(pc.equal(sizes, 1)).as_py():,} rows had exactly one",
    ]
    people = metadata.get("people") or {}
    if people.get("annotators"):
        n_votes = sum(annotator["votes"] for annotator in people["annotators"])
        lines.append(f"{n_votes:,} votes of {len(people['annotators']):,} annotators")
    for line in summary_lines(metadata.get("columns", {})):
        lines.append(_escaped(line))
    n_decided = pc.sum(run.decided["decided"]).as_py() or 0
    if n_decided:
        lines.append(f"{n_decided:,} rows were decided by people")
    return _bulleted("## Training data", lines)


def _accuracy(run: Run) -> str:
    estimate = AccuracyEstimate(**run.metadata["estimate"])
    return f"""## Accuracy

- On new rows: {_escaped(estimate.in_words)}.
- Of the labels given to the training rows: {_escaped(label_accuracy_in_words(run))}.

Both hold only for rows like those of the training table.
"""


def _limits(run: Run) -> str:
    table = run.decided
    n_to_ask = pc.sum(table["ask"]).as_py() or 0
    lines = [
        "Every row gets one of the classes above, even one that belongs to none of them. Read the probability before you use a label.",
        f"In {n_to_ask:,} of {table.num_rows:,} training rows the label was doubtful enough to ask a person about.",
    ]
    if run.model.encoding.roles.categories:
        lines.append("Categories that were not seen in training are ignored, with a warning.")
    n_outside = table.num_rows - table["outside"].null_count
    if n_outside:
        rows = plural("row", n_outside)
        lines.append(f"In {n_outside:,} training {rows} the right label seems to be none of the candidates.")
    lost = warning_about_lost_labels(run)
    warnings = list(run.metadata["warnings"])
    if lost is not None:
        warnings.append(lost)
    for warning in warnings:
        lines.append(f"From the fit: {_escaped(warning)}")
    lines.append("Whether the labels are fair to the people or things that they describe was not examined.")
    return _bulleted("## Limits", lines)


def _bulleted(heading: str, points: Sequence[str]) -> str:
    """Return a section that is a list."""
    items = [f"- {point}" for point in points]
    return "\n".join([heading, "", *items, ""])


def _without_backticks(name: str) -> str:
    """Return a name on one line that may stand in Markdown's backticks."""
    return one_line(name).replace("`", " ")


def _escaped(text: Any) -> str:
    """Return a text on one line, with the special characters of Markdown and HTML escaped."""
    return _MARKDOWN.sub(r"\\\1", one_line(str(text)))

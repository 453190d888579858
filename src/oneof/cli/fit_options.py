"""Options of `oneof fit` in groups: each field is an option, which `with_options` adds to the command."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneof.cli.columns import LEARNING, RESOURCES, VOTES, CacheFolder, path_text, split_classes
from oneof.cli.votes import Kind

if TYPE_CHECKING:
    from oneof.learners.base import Resources
    from oneof.learners.config import FitConfig, ImageConfig
    from oneof.votes.layout import Form
    from oneof.votes.read import VotesFile


# fmt: off
@dataclass(frozen=True)
class VoteOptions:
    """Options that describe the file of votes."""

    on: Annotated[str, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column in both files that says which votes belong to which row.")] = "item"
    annotators: Annotated[list[str] | None, typer.Option(metavar="COLUMN", hidden=True, help="The same as --columns.")] = None
    columns: Annotated[list[str] | None, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column of an annotator, or a pattern such as 'llm_*', where the file has a column for each. Repeatable. Default: guessed.")] = None
    item: Annotated[str | None, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column of the item's id in the votes. Default: that of --on.")] = None
    annotator: Annotated[str, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column of the annotator, where there is a row per vote.")] = "annotator"
    label: Annotated[str, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column of the label, where there is a row per vote.")] = "label"
    confidence: Annotated[str | None, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column of the weight of a vote, 0 to 1. Default: every vote counts 1.")] = None
    map_file: Annotated[Path | None, typer.Option("--map", metavar="FILE", rich_help_panel=VOTES, help="What answers mean: a CSV with the columns answer and label. An empty label is no vote.")] = None
    map_out: Annotated[Path | None, typer.Option("--map-out", metavar="FILE", rich_help_panel=VOTES, help="CSV to write what answers in free text were mapped to: answer, label, count. Correct it and give it to --map.")] = None
    normalise: Annotated[bool, typer.Option("--normalise", rich_help_panel=VOTES, help="Ignore case and surrounding space of labels.")] = False
    classes: Annotated[str | None, typer.Option(metavar="LABELS", rich_help_panel=VOTES, help="All labels, separated by commas; answers are mapped to them, and it is an error if many answers name none of them. Default: the labels that occur.")] = None
    kind: Annotated[Kind | None, typer.Option(rich_help_panel=VOTES, help="long: a row per vote; wide: a column per annotator. Default: guessed from the file.")] = None
    from_name: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=VOTES, help="Label Studio: the control whose choices are votes. Needed where there are several.")] = None
    ranked: Annotated[bool, typer.Option("--ranked", rich_help_panel=VOTES, help="The first label of a list counts most. Default: the labels of a list are equally plausible.")] = False
    taxonomy: Annotated[Path | None, typer.Option(metavar="FILE", rich_help_panel=VOTES, help="Table of child and parent labels: a vote for a parent is a vote for all labels below it.")] = None
    # fmt: on

    def votes_file(self, votes: Path | None, separator: str) -> VotesFile | None:
        """Return how the file of votes is read; None without one, where ValueError is raised if any of these options is set."""
        from oneof.votes.read import VotesFile

        if votes is None:
            self._check_unused()
            return None
        form: Form | None = None
        if self.kind is not None:
            form = self.kind.value
        votes_file = VotesFile(
            str(votes),
            self.item or self.on,
            self.annotator,
            self.label,
            columns=(*(self.columns or ()), *(self.annotators or ())),
            separator=separator,
            taxonomy=path_text(self.taxonomy),
            confidence=self.confidence,
            map=path_text(self.map_file),
            normalise=self.normalise,
            classes=split_classes(self.classes),
            from_name=self.from_name,
            ranked=self.ranked,
            form=form,
        )
        if self.item:  # the id has another name in the table
            votes_file = replace(votes_file, on=self.on)
        return votes_file

    def _check_unused(self) -> None:
        """Raise ValueError if an option is set; one with a default value, such as --label, looks the same if it is not."""
        options = {
            "--annotators": self.annotators,
            "--columns": self.columns,
            "--item": self.item,
            "--confidence": self.confidence,
            "--map": self.map_file,
            "--map-out": self.map_out,
            "--kind": self.kind,
            "--classes": self.classes,
            "--normalise": self.normalise,
            "--from-name": self.from_name,
            "--ranked": self.ranked,
            "--taxonomy": self.taxonomy,
        }
        for option, value in options.items():
            if value:
                raise ValueError(f"{option} requires --votes. Add --votes FILE.")


# fmt: off
@dataclass(frozen=True)
class LearningOptions:
    """Options about what is trained, and how."""

    method: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=LEARNING, help="Loss to train with, such as proden, lws or cc. Default: balanced PRODEN, which suits most tables.")] = None
    purify: Annotated[bool, typer.Option("--purify/--no-purify", rich_help_panel=LEARNING, help="Remove candidates that the networks rule out while they train.")] = True
    train_on_gold: Annotated[bool, typer.Option("--train-on-gold", rich_help_panel=LEARNING, help="Train on the labels of --gold or --gold-file too. The accuracy that they measure is then too high.")] = False
    learners: Annotated[list[str] | None, typer.Option(metavar="NAME", rich_help_panel=LEARNING, help="Learner to use: networks, linear, trees, set_trees, boosting or kernel. Repeatable. Default: all; held-out sets decide their weights.")] = None
    networks: Annotated[int | None, typer.Option(min=1, metavar="N", rich_help_panel=LEARNING, help="Number of networks to train; more take longer and give steadier results. Default: 5, on pictures 3 or 1.")] = None
    epochs: Annotated[int | None, typer.Option(min=1, metavar="N", rich_help_panel=LEARNING, help="Epochs of training. Default: 30, fewer on large tables; on pictures 100 on a GPU, 5 to 60 on a CPU.")] = None
    settings: Annotated[Path | None, typer.Option(metavar="FILE", rich_help_panel=LEARNING, help="Settings of the networks, as oneof tune writes them. Default: settings that suit most tables.")] = None
    sample: Annotated[int | None, typer.Option(min=10, metavar="ROWS", rich_help_panel=LEARNING, help="With many files: number of rows to learn from. Default: as many as improve the predictions of other rows, at most 100,000.")] = None
    seed: Annotated[int, typer.Option(min=0, metavar="N", rich_help_panel=LEARNING, help="Seed of all random choices.")] = 0
    # fmt: on

    def fit_config(self, images: ImageConfig, quick: bool) -> FitConfig:
        """Return the settings of the fit."""
        from oneof.estimator.settings_file import read_settings
        from oneof.learners.config import EnsembleConfig, FitConfig, make_ensemble_config

        network_settings = {}
        if self.settings is not None:
            network_settings = read_settings(self.settings)
        purify = None
        if self.purify:
            purify = EnsembleConfig.purify
        ensemble = make_ensemble_config(
            network_settings,
            self.method,
            purify,
            self.learners or None,
            quick,
            n_networks=self.networks or EnsembleConfig.n_networks,
            epochs=self.epochs,
        )
        return FitConfig(ensemble, images, train_on_gold=self.train_on_gold, seed=self.seed)


# fmt: off
@dataclass(frozen=True)
class ResourceOptions:
    """Options about the machine."""

    device: Annotated[str, typer.Option(metavar="NAME", rich_help_panel=RESOURCES, help="Where to train: cpu, cuda or auto, which takes the GPU, if there is one, for pictures and for tables of 20,000 rows or more.")] = "auto"
    n_jobs: Annotated[int | None, typer.Option(metavar="N", rich_help_panel=RESOURCES, help="Number of processes; -1: all processors. On tables the result is the same for any number. On pictures each takes a GPU of its own, where there are as many; more processes than networks share the rows, and give the same accuracy. Default: one, or those that torchrun or SLURM started.")] = None
    threads: Annotated[int | None, typer.Option(min=1, metavar="N", rich_help_panel=RESOURCES, help="Number of threads of torch. Default: 1, which is fastest for small networks; for pictures by their number and the idle cores.")] = None
    memory: Annotated[float, typer.Option(min=0.001, metavar="GB", rich_help_panel=RESOURCES, help="Gigabytes of memory that training may take.")] = 1.0
    cache_dir: CacheFolder = None
    deterministic: Annotated[bool, typer.Option("--deterministic", rich_help_panel=RESOURCES, help="Give identical results, to the last bit, on the same machine. Without it, rounding may differ.")] = False
    # fmt: on

    def resources(self, pictures: bool) -> Resources:
        """Return what training may use; `pictures` tells whether networks are trained on pixels."""
        from oneof.learners.base import Resources
        from oneof.training.parallel import resolve_n_jobs

        n_jobs = resolve_n_jobs(self.n_jobs, pictures=pictures)
        memory = int(self.memory * 2**30)
        return Resources(device=self.device, n_jobs=n_jobs, threads=self.threads, memory=memory)

"""What the findings mean and what to do, in words: `stop` (nothing can be learned), `warn`, `info`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from oneof.inspect.counts import Counts, Label
from oneof.inspect.dependence import Dependence
from oneof.inspect.faults import Faults
from oneof.inspect.identify import Identity

_SHOWN = 8  # labels or rows named in a sentence; the values are all in the other fields


@dataclass(frozen=True)
class Finding:
    """One thing to know, and what to do about it."""

    severity: str  # "stop", "warn" or "info"
    about: str  # one word: which finding this is
    text: str


def advise(counts: Counts, identity: Identity, faults: Faults | None, dependence: Dependence) -> tuple[Finding, ...]:
    """Everything worth saying, the gravest first."""
    found = [*_on_sets(counts), *_on_labels(counts, identity), *(_on_features(faults) if faults else ())]
    found.append(_on_dependence(dependence))
    return gravest_first(found)


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    order = ("stop", "warn", "info")
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def _on_sets(counts: Counts) -> Iterator[Finding]:
    n, c = counts.rows, len(counts.classes)
    if counts.empty:
        yield Finding(
            "stop", "empty", f"{counts.empty} of {n} sets are empty: drop these rows, or say --empty unlabelled."
        )
    if n < c:
        yield Finding("stop", "rows", f"{n} rows for {c} classes: not every class can have an example. Get more rows.")
    if counts.full == n:
        yield Finding("stop", "full", "every set is full: the sets say nothing, so nothing can be learned from them.")
    elif counts.full > n / 2:
        yield Finding(
            "warn",
            "full",
            f"{counts.full} of {n} sets are full and say nothing: only the other {n - counts.full} rows teach. Exclude labels where you can (--not).",
        )
    if counts.singletons == n:
        yield Finding("info", "singletons", "every set holds one label: this is ordinary supervised learning.")


def _on_labels(counts: Counts, identity: Identity) -> Iterator[Finding]:
    if counts.absent:
        yield Finding(
            "warn",
            "absent",
            f"in no set, so never to be learned: {_list(counts.absent)}. Drop the class or get rows of it.",
        )
    if counts.full == counts.rows:
        return  # all labels occur together then, which has been said
    present = len(counts.classes) - len(counts.absent)
    for group in identity.groups:
        everything = len(group) == present
        advice = "nothing can be learned" if everything else "merge them, or get one row whose set separates them"
        yield Finding(
            "stop" if everything else "warn", "together", f"labels {_list(group)} always occur together: {advice}."
        )
    if identity.one_sided:
        pairs = [f"{pair.label} only with {pair.other} ({pair.sets} sets)" for pair in identity.one_sided]
        yield Finding(
            "info",
            "one-sided",
            f"some labels never occur without another, so the sets never favour them: {_list(pairs)}.",
        )


def _on_features(faults: Faults) -> Iterator[Finding]:
    for fault in faults.nonfinite:
        yield Finding(
            "stop",
            "non-finite",
            f"feature {fault.column} is NaN or infinite in {fault.rows} rows, first row {fault.first}: fill or drop them.",
        )
    if faults.conflicts:
        groups = ["rows " + ", ".join(map(str, rows[:_SHOWN])) for rows in faults.conflicts]
        yield Finding(
            "warn",
            "conflict",
            f"equal features, but sets without a common label: {_list(groups, '; ')}. "
            "One answer cannot suit all of them: check these rows, or add a feature that tells them apart.",
        )
    if faults.constant:
        yield Finding(
            "info",
            "constant",
            f"features with one value only: {_list(faults.constant)}. They can be left out (--ignore).",
        )
    if faults.duplicates:
        yield Finding(
            "info",
            "duplicates",
            f"{faults.duplicates} rows repeat the features of an earlier row: keep such rows on one side of a split (--group).",
        )


_WHAT_TO_DO = {
    "uniform": "the sets look uniform: any method of oneof fit will do; --method rc and --method cc are derived for such sets.",
    "class-dependent": "the sets look class-dependent: keep the default of oneof fit or try --method lws, not rc or cc, which assume uniform sets.",
    "instance-dependent": "the sets look instance-dependent: let oneof fit purify them (--purify, its default).",
    "unknown": "what the sets depend on was not tested.",
}


def _on_dependence(dependence: Dependence) -> Finding:
    reason = dependence.reason[0].upper() + dependence.reason[1:]
    return Finding("info", "dependence", f"{_WHAT_TO_DO[dependence.verdict]} {reason}.")


def _list(items: Sequence[Label], separator: str = ", ") -> str:
    shown = separator.join(map(str, items[:_SHOWN]))
    return f"{shown}{separator}... ({len(items)} in all)" if len(items) > _SHOWN else shown

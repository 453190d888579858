"""What the findings mean and what to do, in words: `stop` (nothing can be learned), `warn`, `info`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oneof.candidates.read import show
from oneof.inspect.dependence import Dependence
from oneof.inspect.identify import Counts, Faults, Identity

_SHOWN = 8  # labels or rows named in a sentence; the values are all in the other fields


@dataclass(frozen=True)
class Finding:
    severity: str  # "stop", "warn" or "info"
    about: str  # one word: which finding this is
    text: str


def advise(
    counts: Counts, identity: Identity, faults: Faults | None, dependence: Dependence | None
) -> tuple[Finding, ...]:
    """Return everything worth saying, the gravest first."""
    found = [*_on_sets(counts), *_on_labels(counts, identity)]
    if faults is not None:
        found += _on_features(faults)
    if dependence is not None:
        reason = dependence.reason[0].upper() + dependence.reason[1:]
        found.append(Finding("info", "dependence", f"{_WHAT_TO_DO[dependence.verdict]} {reason}."))
    return gravest_first(found)


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: ("stop", "warn", "info").index(finding.severity)))


def _on_sets(counts: Counts) -> Iterator[Finding]:
    n, c, full = counts.rows, len(counts.classes), counts.full
    if counts.empty:
        text = f"{counts.empty} of {n} sets are empty: drop these rows, or say --empty unlabelled."
        yield Finding("stop", "empty", text)
    if n < c:
        yield Finding("stop", "rows", f"{n} rows for {c} classes: not every class can have an example. Get more rows.")
    if full == n:
        yield Finding("stop", "full", "every set is full: the sets say nothing, so nothing can be learned from them.")
    elif full > n / 2:
        text = f"{full} of {n} sets are full and say nothing: only the other {n - full} rows teach. Exclude labels where you can (--not)."
        yield Finding("warn", "full", text)
    if counts.singletons == n:
        yield Finding("info", "singletons", "every set holds one label: this is ordinary supervised learning.")


def _on_labels(counts: Counts, identity: Identity) -> Iterator[Finding]:
    if counts.absent:
        text = f"in no set, so never to be learned: {show(counts.absent, _SHOWN)}. Drop the class or get rows of it."
        yield Finding("warn", "absent", text)
    if counts.full == counts.rows:
        return  # all labels occur together then, which has been said
    present = len(counts.classes) - len(counts.absent)
    for group in identity.groups:
        severity, advice = "warn", "merge them, or get one row whose set separates them"
        if len(group) == present:
            severity, advice = "stop", "nothing can be learned"
        yield Finding(severity, "together", f"labels {show(group, _SHOWN)} always occur together: {advice}.")
    if identity.one_sided:
        pairs = [f"{pair.label} only with {pair.other} ({pair.sets} sets)" for pair in identity.one_sided]
        text = f"some labels never occur without another, so the sets never favour them: {show(pairs, _SHOWN)}."
        yield Finding("info", "one-sided", text)


def _on_features(faults: Faults) -> Iterator[Finding]:
    for fault in faults.nonfinite:
        where = f"in {fault.rows} rows, first row {fault.first}"
        yield Finding("stop", "non-finite", f"feature {fault.column} is NaN or infinite {where}: fill or drop them.")
    if faults.conflicts:
        groups = ["rows " + ", ".join(map(str, rows[:_SHOWN])) for rows in faults.conflicts]
        text = f"equal features, but sets without a common label: {show(groups, _SHOWN, '; ')}. "
        text += "One answer cannot suit all of them: check these rows, or add a feature that tells them apart."
        yield Finding("warn", "conflict", text)
    if faults.constant:
        text = f"features with one value only: {show(faults.constant, _SHOWN)}. They can be left out (--ignore)."
        yield Finding("info", "constant", text)
    if faults.duplicates:
        text = f"{faults.duplicates} rows repeat the features of an earlier row: keep such rows on one side of a split (--group)."
        yield Finding("info", "duplicates", text)


_WHAT_TO_DO = {
    "uniform": "the sets look uniform: any method of oneof fit will do; --method rc and --method cc are derived for such sets.",
    "class-dependent": "the sets look class-dependent: keep the default of oneof fit or try --method lws, not rc or cc, which assume uniform sets.",
    "instance-dependent": "the sets look instance-dependent: let oneof fit purify them (--purify, its default).",
    "unknown": "what the sets depend on was not tested.",
}

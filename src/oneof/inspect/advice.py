"""Turn the results of an inspection into findings with advice: `stop` (nothing can be learned), `warn` or `info`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oneof.candidates.read import show
from oneof.inspect.dependence import Dependence
from oneof.inspect.identify import Counts, FeatureIssues, Identifiability

_MAX_NAMED = 8  # labels or rows named in a sentence; the other fields of the inspection have all of them
_SEVERITIES = ("stop", "warn", "info")


@dataclass(frozen=True)
class Finding:
    """One finding, with what to do about it."""

    severity: str  # "stop", "warn" or "info"
    about: str  # one word that identifies the kind of finding
    text: str


def advise(
    counts: Counts, identity: Identifiability, faults: FeatureIssues | None, dependence: Dependence | None
) -> tuple[Finding, ...]:
    """Return all findings, the most severe first."""
    findings = [*_check_sets(counts), *_check_labels(counts, identity)]
    if faults is not None:
        findings += _check_features(faults)
    if dependence is not None:
        reason = dependence.reason[0].upper() + dependence.reason[1:]
        text = f"{_ADVICE_BY_VERDICT[dependence.verdict]} {reason}."
        findings.append(Finding("info", "dependence", text))
    return by_severity(findings)


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings sorted by severity, the most severe first; equally severe ones keep their order."""
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)))


def _check_sets(counts: Counts) -> Iterator[Finding]:
    n = counts.rows
    c = len(counts.classes)
    full = counts.full
    if counts.empty:
        text = f"{counts.empty} of {n} sets are empty: drop these rows, or use --empty unlabelled."
        yield Finding("stop", "empty", text)
    if n < c:
        yield Finding("stop", "rows", f"{n} rows for {c} classes: not every class can have an example. Get more rows.")
    if full == n:
        text = "every set is full: the sets exclude no label, so nothing can be learned from them."
        yield Finding("stop", "full", text)
    elif full > n / 2:
        text = (
            f"{full} of {n} sets are full and exclude no label: only the other {n - full} rows contribute to training. "
            "Exclude labels where you can (--not)."
        )
        yield Finding("warn", "full", text)
    if counts.singletons == n:
        yield Finding("info", "singletons", "every set holds one label: this is ordinary supervised learning.")


def _check_labels(counts: Counts, identity: Identifiability) -> Iterator[Finding]:
    if counts.absent:
        absent = show(counts.absent, _MAX_NAMED)
        text = f"classes in no set, which cannot be learned: {absent}. Drop the class or get rows of it."
        yield Finding("warn", "absent", text)
    if counts.full == counts.rows:
        return  # all labels occur together then, which the finding on full sets covers
    present = len(counts.classes) - len(counts.absent)
    for group in identity.groups:
        if len(group) == present:
            severity = "stop"
            advice = "nothing can be learned"
        else:
            severity = "warn"
            advice = "merge them, or get one row whose set separates them"
        yield Finding(severity, "together", f"labels {show(group, _MAX_NAMED)} always occur together: {advice}.")
    if identity.one_sided:
        pairs = [f"{pair.label} only with {pair.other} ({pair.sets} sets)" for pair in identity.one_sided]
        text = f"some labels never occur without another, so the sets never favour them: {show(pairs, _MAX_NAMED)}."
        yield Finding("info", "one-sided", text)


def _check_features(faults: FeatureIssues) -> Iterator[Finding]:
    for issue in faults.nonfinite:
        where = f"in {issue.rows} rows, first row {issue.first}"
        yield Finding("stop", "non-finite", f"feature {issue.column} is NaN or infinite {where}: fill or drop them.")
    if faults.conflicts:
        groups = []
        for rows in faults.conflicts:
            groups.append("rows " + ", ".join(map(str, rows[:_MAX_NAMED])))
        text = (
            f"equal features, but sets without a common label: {show(groups, _MAX_NAMED, '; ')}. "
            "No single label fits all of them: check these rows, or add a feature that distinguishes them."
        )
        yield Finding("warn", "conflict", text)
    if faults.constant:
        constant = show(faults.constant, _MAX_NAMED)
        text = f"features with one value only: {constant}. They can be left out (--ignore)."
        yield Finding("info", "constant", text)
    if faults.duplicates:
        text = (
            f"{faults.duplicates} rows repeat the features of an earlier row: "
            "keep such rows on one side of a split (--group)."
        )
        yield Finding("info", "duplicates", text)


# oneof fit bounds the accuracy as soon as dependence is significant, by the tests of `oneof.ensemble.candidate_randomness`. The test here also
# requires a minimum size, so that a sentence on what it did not find must not deny what a fit then reports.
_ADVICE_BY_VERDICT = {
    "uniform": (
        "no clear dependence of the sets on the class or the features was found. A weak one is not ruled out, and oneof fit, whose models "
        "and tests are stronger, may find it. Any method of oneof fit will do; --method rc and --method cc assume that there is none."
    ),
    "class-dependent": (
        "the sets look class-dependent; that they depend on the features too was not found, and is not ruled out. Keep the default of "
        "oneof fit or try --method lws, not rc or cc, which assume uniform sets."
    ),
    "instance-dependent": "the sets look instance-dependent: let oneof fit purify them (--purify, its default).",
    "unknown": "what the sets depend on was not tested.",
}

"""Encode the columns of a table as features: impute numbers, one-hot encode categories, and turn texts and images into vectors.

What is learned from training rows is plain values that JSON can hold, and arrays for texts. Texts become TF-IDF weights of words and
character n-grams, reduced by a truncated SVD. Accuracy on 4,999 sentences with two sentiments (logistic regression, five folds,
everything fitted inside the fold): .733 with 400 components, .68 with 100, .70 without character n-grams, and .743 for TF-IDF of
words without SVD, which has too many features to train networks on.
"""

import math
import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from oneof.data.components import ARRAYS as COMPONENT_ARRAYS
from oneof.data.components import Components, learn_components
from oneof.data.embed import MODELS, embed_values, open_embedder
from oneof.data.images import ImageSpec, PictureRows, learn_image_spec, read_pictures
from oneof.data.patches import ARRAYS, PatchFeatures, learn_patches, sample_of_pictures
from oneof.data.roles import PATCHES, ColumnRoles, Notation
from oneof.data.table import Columns, ColumnValues
from oneof.data.text_columns import MAX_PLAIN_VALUES, MAX_VALUES
from oneof.storage.progress import progress_bar

EMBEDDING_WIDTH = 256  # columns of numbers from which they are taken for an embedding
MAX_ONE_HOT = 100  # most frequent values of a category, each with a feature of its own
MIN_ROWS = 3  # of a value with a feature of its own, in a column with more than MAX_PLAIN_VALUES values
# Components of the SVD: a tenth of the texts within these bounds, a third if there are few texts.
MIN_COMPONENTS = 300
MAX_COMPONENTS = 500
_MAX_TERMS = 20_000  # size of the vocabulary, the most frequent terms first
_MAX_FIT_TEXTS = 20_000  # a random sample of more texts is fitted
_CHUNK = 2_000  # texts transformed at a time
# Columns of numbers are taken for counts of words if there are so many of them, and this share of their values is 0.
MIN_COUNT_COLUMNS = 20
MIN_ZERO_SHARE = 0.8
MAX_UNSEEN = 5  # categories not seen in training that a message lists
Unseen = dict[str, set[str]]  # column -> values


@dataclass(frozen=True, eq=False)
class Texts:
    """TF-IDF and truncated SVD of a column of text, fitted on training rows."""

    column: str
    terms: tuple[str, ...]  # [v] words, bigrams of words, and character n-grams, which begin with #
    idf: NDArray[np.float32]  # [v]
    axes: NDArray[np.float16]  # [v, width] components; in half precision, in training too, to halve the size of a run

    @property
    def width(self) -> int:
        """Return the number of features."""
        return int(self.axes.shape[1])

    def transform(self, values: ColumnValues) -> NDArray[np.float32]:
        """Return the features [n, width] of texts; zeros where a text is missing or has no known term."""
        vectorizer = _make_vectorizer(vocabulary=self.terms)
        vectorizer.idf_ = self.idf
        components = self.axes.astype(np.float32)
        features = np.zeros((len(values), self.width), dtype=np.float32)
        with progress_bar("read texts", len(values), show=len(values) > _CHUNK) as step:
            for start in range(0, len(values), _CHUNK):
                texts = [value or "" for value in values[start : start + _CHUNK]]
                features[start : start + _CHUNK] = vectorizer.transform(texts) @ components
                step(steps=len(texts))
        return features


def learn_texts(column: str, values: ColumnValues, source: str) -> Texts:
    """Fit TF-IDF and a truncated SVD on the texts of a column."""
    from sklearn.decomposition import TruncatedSVD  # here: it takes a second to load, and few tables have texts

    texts = [value for value in values if value is not None]
    sample = random.Random(0).sample(texts, min(len(texts), _MAX_FIT_TEXTS))
    vectorizer = _make_vectorizer(min_df=2, max_features=_MAX_TERMS)
    try:
        weights = vectorizer.fit_transform(sample)
    except ValueError as error:  # scikit-learn has an empty vocabulary
        raise ValueError(
            f"a column of text must have words that two rows share; {source}, column {column!r} has none in "
            f"{len(sample)} texts. Leave it out, or make it a category."
        ) from error
    n_components = int(np.clip(len(sample) // 10, MIN_COMPONENTS, MAX_COMPONENTS))
    n_components = max(1, min(len(sample) // 3, n_components, weights.shape[1] - 1))
    svd = TruncatedSVD(n_components, n_iter=3, random_state=0).fit(weights)
    terms = tuple(str(term) for term in vectorizer.get_feature_names_out())
    return Texts(column, terms, vectorizer.idf_.astype(np.float32), svd.components_.T.astype(np.float16))


def _make_vectorizer(**params: Any) -> Any:
    """Return a TfidfVectorizer of lower-case words, their bigrams, and character n-grams of length three to five."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    word_ngrams = CountVectorizer(ngram_range=(1, 2)).build_analyzer()
    char_ngrams = CountVectorizer(analyzer="char_wb", ngram_range=(3, 5)).build_analyzer()

    def analyze(text: str) -> list[str]:
        terms = list(word_ngrams(text))
        terms += [f"#{ngram}" for ngram in char_ngrams(text)]
        return terms

    return TfidfVectorizer(analyzer=analyze, sublinear_tf=True, dtype=np.float32, **params)


@dataclass(frozen=True)
class Embedded:
    """A column of texts or images that a pretrained network embeds."""

    column: str
    kind: str  # "text" or "image"
    model: str  # name of the network
    width: int  # number of features


class EncodedRows(NamedTuple):
    """Features of n rows, and which of them have a picture that could be read."""

    features: NDArray[Any]  # [n, d] float32, or the uint8 pixels of pictures
    readable: NDArray[np.bool_]  # [n] False where a picture could not be read
    fault: str | None  # a message that names what could not be read


class _VectorColumn(NamedTuple):
    """A column that becomes several numeric features."""

    column: str
    width: int
    origin: str  # how the features are made


@dataclass(frozen=True)
class Encoding:
    """Map from columns to features [n, d], fitted on training rows."""

    numbers: tuple[str, ...]
    fills: tuple[float, ...]  # median of each column of numbers, imputed for missing values
    gaps: tuple[str, ...]  # columns of numbers with missing values in training: each gets an indicator feature
    categories: dict[str, tuple[str, ...]]  # column -> training values with a feature each; "" is the missing value
    embedded: tuple[Embedded, ...]
    dates: tuple[str, ...] = ()  # those of `numbers` that are dates in the table
    texts: tuple[Texts, ...] = ()  # columns of text without an embedder
    # Images without an embedder: then nothing else is encoded, and features are uint8.
    pixels: tuple[ImageSpec, ...] = ()
    rare: dict[str, tuple[str, ...]] = field(default_factory=dict)  # column -> training values that share a feature
    patches: tuple[PatchFeatures, ...] = ()  # images whose features were learned from the training images
    components: Components | None = None  # of very many columns of numbers and their gaps, in place of them
    notations: tuple[Notation, ...] = ()  # of those of `numbers` that the table holds as text
    placeholders: tuple[tuple[str, float], ...] = ()  # column -> the number that stands for a missing value
    origins: tuple[tuple[str, float], ...] = ()  # column -> the number that is subtracted from its numbers

    @property
    def names(self) -> list[str]:
        """Return the names of the d features."""
        if self.components is not None:
            names = [f"component {j}" for j in range(self.components.width)]
        else:
            names = list(self.numbers)
            names += [f"{column} is missing" for column in self.gaps]
        for column, values in self.categories.items():
            for value in values:
                if value == "":
                    names.append(f"{column} is missing")
                else:
                    names.append(f"{column}={value}")
            if column in self.rare:
                names.append(f"{column} is rare")
        for vector in self._vector_columns:
            names += [f"{vector.column}[{j}]" for j in range(vector.width)]
        return names

    @property
    def has_embeddings(self) -> bool:
        """Return whether features are embeddings, by a pretrained network, by patches, or as many columns of numbers."""
        return bool(self.embedded or self.patches) or len(self.numbers) >= EMBEDDING_WIDTH

    @property
    def n_inputs(self) -> int:
        """Return the number of features before they are replaced by components."""
        return len(replace(self, components=None).names)

    def category_codes(self, column: str) -> dict[str, int]:
        """Return the code of each training value, its feature among those of the column; rare values share the last."""
        values = self.categories[column]
        codes = {value: code for code, value in enumerate(values)}
        for value in self.rare.get(column, ()):
            codes[value] = len(values)
        return codes

    def category_width(self, column: str) -> int:
        """Return the number of features of a category."""
        n_features = len(self.categories[column])
        if column in self.rare:
            n_features += 1
        return n_features

    @property
    def without_vectors(self) -> Self:
        """Return the encoding of numbers and categories alone, without texts and images."""
        return replace(self, embedded=(), texts=(), pixels=(), patches=())

    @property
    def derived_features(self) -> list[str]:
        """Return a line for every column of texts or images: which features are made from it, and how."""
        lines = []
        for column, width, origin in self._vector_columns:
            lines.append(f"{column}[0] to {column}[{width - 1}] are made {origin}")
        return lines

    @property
    def _vector_columns(self) -> list[_VectorColumn]:
        """Return the columns that become several numeric features, in the order of the features."""
        columns = []
        for part in self.embedded:
            columns.append(_VectorColumn(part.column, part.width, f"from the {part.kind} by {part.model}"))
        for text in self.texts:
            columns.append(_VectorColumn(text.column, text.width, "from the text by TF-IDF"))
        for image in self.pixels:
            origin = f"of the picture's levels 0 to 255, {image.shape}"
            columns.append(_VectorColumn(image.column, math.prod(image.shape), origin))
        for learned in self.patches:
            columns.append(_VectorColumn(learned.column, learned.width, "from the picture by its patches"))
        return columns

    def to_json(self) -> dict[str, Any]:
        """Return everything but the arrays as plain values."""
        plain = asdict(replace(self, texts=(), patches=(), components=None))
        plain["texts"] = [{"column": text.column, "terms": text.terms} for text in self.texts]
        plain["patches"] = [{**asdict(part.pixels), "mirrored": int(part.mirrored)} for part in self.patches]
        for name in ("placeholders", "origins"):
            plain[name] = [{"column": column, "number": number} for column, number in getattr(self, name)]
        plain["components"] = 0
        if self.components is not None:
            plain["components"] = self.components.width
        return plain

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that `to_json` leaves out, by key."""
        arrays: dict[str, NDArray[Any]] = {}
        for i, text in enumerate(self.texts):
            arrays[f"texts.{i}.idf"] = text.idf
            arrays[f"texts.{i}.axes"] = text.axes
        for i, part in enumerate(self.patches):
            for name in ARRAYS:
                arrays[f"{PATCHES}.{i}.{name}"] = getattr(part, name)
        if self.components is not None:
            for name in COMPONENT_ARRAYS:
                arrays[f"components.{name}"] = getattr(self.components, name)
        return arrays

    @classmethod
    def from_json(cls, plain: dict[str, Any], arrays: Mapping[str, Any]) -> Self:
        """Restore an encoding from what `to_json` and `arrays` returned."""
        texts = []
        for i, part in enumerate(plain["texts"]):
            idf = np.asarray(arrays[f"texts.{i}.idf"])
            axes = np.asarray(arrays[f"texts.{i}.axes"])
            texts.append(Texts(part["column"], tuple(part["terms"]), idf, axes))
        patches = []
        for i, part in enumerate(plain.get("patches", [])):  # runs of earlier versions have none
            pixels = ImageSpec(part["column"], part["channels"], part["side"])
            stored = [np.asarray(arrays[f"{PATCHES}.{i}.{name}"]) for name in ARRAYS]
            patches.append(PatchFeatures(pixels, bool(part["mirrored"]), *stored))
        components = None
        if plain.get("components"):  # runs of earlier versions have none
            stored = [np.asarray(arrays[f"components.{name}"]) for name in COMPONENT_ARRAYS]
            components = Components(*stored)
        categories = {column: tuple(values) for column, values in plain["categories"].items()}
        rare = {column: tuple(values) for column, values in plain.get("rare", {}).items()}
        notations = []
        for part in plain.get("notations", []):  # runs of earlier versions have none
            notations.append(Notation(part["column"], part["form"], part["units"], tuple(part["gaps"])))
        return cls(
            numbers=tuple(plain["numbers"]),
            fills=tuple(plain["fills"]),
            gaps=tuple(plain["gaps"]),
            categories=categories,
            embedded=tuple(Embedded(**part) for part in plain["embedded"]),
            dates=tuple(plain["dates"]),
            texts=tuple(texts),
            pixels=tuple(ImageSpec(**part) for part in plain["pixels"]),
            rare=rare,
            patches=tuple(patches),
            components=components,
            notations=tuple(notations),
            placeholders=_column_numbers(plain, "placeholders"),
            origins=_column_numbers(plain, "origins"),
        )

    @property
    def roles(self) -> ColumnRoles:
        """Return the roles of the columns that are needed for prediction."""
        text_columns = []
        image_columns = []
        for part in self.embedded:
            if part.kind == "text":
                text_columns.append(part.column)
            elif part.kind == "image":
                image_columns.append(part.column)
        text_columns += [text.column for text in self.texts]
        image_columns += [image.column for image in self.pixels]
        image_columns += [learned.column for learned in self.patches]
        return ColumnRoles(
            features=self.numbers,
            categories=tuple(self.categories),
            text=tuple(text_columns),
            image=tuple(image_columns),
            candidates=None,
            dates=self.dates,
            notations=self.notations,
            placeholders=self.placeholders,
            origins=self.origins,
        )

    def transform(
        self,
        columns: Columns,
        *,
        folder: Path = Path(),
        cache: Path | None = None,
        trusted_models: Collection[str] = (),
    ) -> NDArray[Any]:
        """Return the features of `encode` alone."""
        return self.encode(columns, folder=folder, cache=cache, trusted_models=trusted_models).features

    def encode(
        self,
        columns: Columns,
        *,
        folder: Path = Path(),
        cache: Path | None = None,
        trusted_models: Collection[str] = (),
    ) -> EncodedRows:
        """Encode columns as features.

        Parameters
        ----------
        columns
            Columns of n rows, those of `roles`.
        folder
            Folder that the names of image files are relative to.
        cache
            Folder of stored embeddings; None for the user's cache.
        trusted_models
            Embedding models that the user has named, which may be opened as well as the default ones. An encoding may come from an
            untrusted folder, and a model in it may be a path whose files bring code along.

        Returns
        -------
        EncodedRows
            Features [n, d], float32, or the uint8 pixels of images; which rows have an image that could be read, and a message on
            the others. Categories not seen in training are zeros, and so are the features of an image that cannot be read.
        """
        if self.pixels:
            return EncodedRows(*self.pictures(columns, folder))
        numbers = self.impute(columns.numbers)
        if self.components is not None:
            numbers = self.components(numbers)
        parts = [numbers]
        for name in self.categories:
            parts.append(self._one_hot(name, columns.non_numeric[name]))
        for part in self.embedded:
            _check_trusted(part, trusted_models)
            embedder = open_embedder(part.kind, part.model)
            vectors = embed_values(columns.non_numeric[part.column], embedder, folder, cache)
            if vectors.shape[1] != part.width:
                raise ValueError(f"the embedder {part.model} must be the one of training; it has changed. Fit again.")
            parts.append(vectors)
        for text in self.texts:
            parts.append(text.transform(columns.non_numeric[text.column]))
        readable = np.ones(len(columns), dtype=bool)
        faults = []
        for patches in self.patches:
            pictures = read_pictures(columns.non_numeric[patches.column], patches.pixels, folder)
            parts.append(patch_features(patches, pictures))
            readable &= pictures.readable
            if pictures.fault:
                faults.append(pictures.fault)
        if len(parts) == 1:  # without a copy
            features = parts[0]
        else:
            features = np.hstack(parts, dtype=np.float32)
        return EncodedRows(features, readable, " ".join(faults) or None)

    def pictures(self, columns: Columns, folder: Path, to: Path | None = None) -> PictureRows:
        """Read the images of an encoding on pixels into memory, or into a file `to`."""
        (part,) = self.pixels
        return read_pictures(columns.non_numeric[part.column], part, folder, to)

    def unseen(self, columns: Columns) -> list[str]:
        """Return a line for every column with categories not seen in training."""
        return describe_unseen(self.unseen_values(columns))

    def unseen_values(self, columns: Columns) -> Unseen:
        """Return the categories not seen in training, by column."""
        unseen = {}
        for column in self.categories:
            values = {value or "" for value in columns.non_numeric[column]}
            new_values = values - self.category_codes(column).keys()
            if new_values:
                unseen[column] = new_values
        return unseen

    def impute(self, numbers: NDArray[np.float32]) -> NDArray[np.float32]:
        """Fill missing numbers [n, k] with the medians, and append an indicator for each column with gaps in training."""
        missing = np.isnan(numbers)
        if not self.gaps and not missing.any():
            return numbers
        medians = np.array(self.fills, dtype=np.float32)
        imputed = np.where(missing, medians, numbers)
        indicators = missing[:, np.isin(self.numbers, self.gaps)]
        return np.hstack([imputed, indicators], dtype=np.float32)

    def empty_rows(self, features: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which rows of encoded features [n, d] show nothing: no number, category or text, and no image that could be read.

        Where no number is missing, a row of zeros counts as an empty text if there are many columns, almost all of them zero, as counts of
        words are. Pixels and components do not tell.
        """
        if self.pixels or self.components is not None or not features.shape[1]:
            return np.zeros(len(features), dtype=bool)
        if set(self.numbers) == set(self.gaps):
            gap_row = [*self.fills, *np.ones(len(self.gaps))]
            for column in self.categories:
                gap_row += self._one_hot(column, [None])[0].tolist()
            empty_row = np.zeros(features.shape[1], dtype=np.float32)
            empty_row[: len(gap_row)] = gap_row
            return np.asarray((features == empty_row).all(1))
        is_zero = features == 0
        are_counts = features.shape[1] >= MIN_COUNT_COLUMNS and is_zero.mean() >= MIN_ZERO_SHARE
        return np.asarray(is_zero.all(1) & are_counts)

    def _one_hot(self, column: str, values: ColumnValues) -> NDArray[np.float32]:
        """Return the one-hot features [n, width] of a category; zeros for a value not seen in training."""
        codes_by_value = self.category_codes(column)
        width = self.category_width(column)
        codes = np.array([codes_by_value.get(value or "", -1) for value in values], dtype=np.intp)
        rows = np.eye(width + 1, width, dtype=np.float32)  # the last row, of code -1, is zeros
        return rows[codes]


def _column_numbers(plain: Mapping[str, Any], name: str) -> tuple[tuple[str, float], ...]:
    """Return a number for each of some columns, as `to_json` describes it; runs of earlier versions have none."""
    return tuple((part["column"], float(part["number"])) for part in plain.get(name, []))


def patch_features(patches: PatchFeatures, pictures: PictureRows) -> NDArray[np.float32]:
    """Return the features of pictures [n, width]; zeros, those of a mean picture, where one could not be read."""
    features = np.zeros((len(pictures.levels), patches.width), dtype=np.float32)
    levels = pictures.levels
    if not pictures.readable.all():  # a selection is a copy
        levels = levels[pictures.readable]
    features[pictures.readable] = patches(levels)
    return features


def describe_unseen(unseen: Mapping[str, Collection[str]]) -> list[str]:
    """Return a line for every column with categories not seen in training."""
    lines = []
    for column, values in unseen.items():
        listed = []
        for value in sorted(values)[:MAX_UNSEEN]:
            if value == "":
                listed.append("a gap")
            else:
                listed.append(repr(value))
        if len(values) > MAX_UNSEEN:
            listed.append("...")
        lines.append(f"column {column!r} has categories not seen in training; ignored: {', '.join(listed)}")
    return lines


def _check_trusted(part: Embedded, trusted_models: Collection[str]) -> None:
    """Raise if an embedding model is neither the default one nor named by the user."""
    default_model = MODELS[part.kind]
    if part.model == default_model or part.model in trusted_models:
        return
    raise ValueError(
        f"an embedder must be one that oneof knows ({default_model}) or that you name yourself; "
        f"the model wants {part.model[:100]!r} for column {part.column!r}. If you trust it, name it: "
        f"oneof predict --{part.kind}-model."
    )


def learn_encoding(
    columns: Columns,
    roles: ColumnRoles,
    *,
    folder: Path = Path(),
    cache: Path | None = None,
    sets: NDArray[np.bool_] | None = None,
) -> Encoding:
    """Fit an encoding on training rows.

    Parameters
    ----------
    columns
        Columns of the n training rows.
    roles
        Resolved roles of the columns.
    folder
        Folder that the names of image files are relative to.
    cache
        Folder of stored embeddings; None for the user's cache.
    sets
        Candidate sets [n, c], which decide whether pictures are mirrored where their features are learned from patches.

    Returns
    -------
    Encoding
        The fitted encoding; `transform` applies it.
    """
    if roles.image and not roles.image_model:
        return _learn_pixel_encoding(columns, roles, folder)
    with_gaps = _columns_with_gaps(columns)
    embedded_columns = []
    texts = []
    for name in roles.text:
        if roles.text_model:
            embedded_columns.append(_learn_embedding(name, "text", roles.text_model, columns, folder, cache))
        else:
            texts.append(learn_texts(name, columns.non_numeric[name], columns.source))
    patches = []
    for name in roles.image:
        if roles.image_model == PATCHES:
            patches.append(_learn_patch_column(name, columns, roles, folder, sets))
        elif roles.image_model:  # without one, pixels are the features
            embedded_columns.append(_learn_embedding(name, "image", roles.image_model, columns, folder, cache))
    categories = {}
    rare = {}
    for name in roles.categories:
        categories[name], rare_values = _learn_category(name, columns)
        if rare_values:
            rare[name] = rare_values
    encoding = Encoding(
        numbers=tuple(columns.names),
        fills=tuple(float(np.nanmedian(column)) for column in columns.numbers.T),
        gaps=with_gaps,
        categories=categories,
        rare=rare,
        embedded=tuple(embedded_columns),
        dates=roles.dates,
        notations=roles.notations,
        placeholders=roles.placeholders,
        origins=roles.origins,
        texts=tuple(texts),
        patches=tuple(patches),
    )
    return replace(encoding, components=learn_components(encoding.impute(columns.numbers)))


def _columns_with_gaps(columns: Columns) -> tuple[str, ...]:
    """Return the columns of numbers with a missing value; raise ValueError if one has nothing else."""
    with_gaps = []
    for name, is_missing in zip(columns.names, np.isnan(columns.numbers).T, strict=True):
        if is_missing.all():
            raise ValueError(
                f"a feature must have a value; {columns.source}, column {name!r} is missing in every row. Leave it out."
            )
        if is_missing.any():
            with_gaps.append(name)
    return tuple(with_gaps)


def _learn_patch_column(
    name: str, columns: Columns, roles: ColumnRoles, folder: Path, sets: NDArray[np.bool_] | None
) -> PatchFeatures:
    """Learn features of a column of images from those of its images that can be read."""
    cells = columns.non_numeric[name]
    image_spec = learn_image_spec(name, cells, folder, roles.image_side)
    rows = sample_of_pictures(len(cells))
    sampled_cells = [cells[row] for row in rows]
    pictures = read_pictures(sampled_cells, image_spec, folder)
    readable = pictures.readable
    if not readable.any():
        raise ValueError(f"column {name!r} must hold pictures below {folder}; of {len(rows):,} none can be read.")
    if sets is not None:
        sets = sets[rows][readable]
    return learn_patches(pictures.levels[readable], image_spec, sets)


def _learn_pixel_encoding(columns: Columns, roles: ColumnRoles, folder: Path) -> Encoding:
    """Return the encoding of one column of images as pixels: a network on images takes no other columns."""
    image, *others = [*roles.image, *roles.text]
    if others:
        raise ValueError(
            f"a network on pictures must learn from one column of them alone; {columns.source} has "
            f"{', '.join(others)} in addition to {image!r}. Leave them out, or give --image-model NAME, which turns pictures "
            "into numbers."
        )
    image_spec = learn_image_spec(image, columns.non_numeric[image], folder, roles.image_side)
    return Encoding(numbers=(), fills=(), gaps=(), categories={}, embedded=(), pixels=(image_spec,))


def _learn_embedding(
    column: str, kind: str, model: str, columns: Columns, folder: Path, cache: Path | None
) -> Embedded:
    """Embed a column of texts or images, which stores the vectors in the cache, and return the width of the vectors."""
    vectors = embed_values(columns.non_numeric[column], open_embedder(kind, model), folder, cache)
    return Embedded(column, kind, model, vectors.shape[1])


def _learn_category(column: str, columns: Columns) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the values of a category with a feature each, and the rare ones that share a feature; both sorted."""
    counts = Counter(value or "" for value in columns.non_numeric[column])
    if len(counts) > MAX_VALUES:
        raise ValueError(
            f"a category must have at most {MAX_VALUES} values; {columns.source}, column {column!r} has {len(counts)}. "
            "Leave it out, or take it as text (--text)."
        )
    if len(counts) <= MAX_PLAIN_VALUES:
        return tuple(sorted(counts)), ()
    # The missing value comes first: it is never rare.
    by_frequency = sorted(counts, key=lambda value: (value != "", -counts[value], value))
    frequent = set()
    for value in by_frequency[:MAX_ONE_HOT]:
        if value == "" or counts[value] >= MIN_ROWS:
            frequent.add(value)
    rare = counts.keys() - frequent
    return tuple(sorted(frequent)), tuple(sorted(rare))

"""The paper's twelve data sets, digits and people's votes on CIFAR-10, a row each: what they are, where they lie, how they load."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.data.files.cifar import read_cifar, read_cifar10h, read_cifar10n
from oneof.data.files.idx import read_idx
from oneof.data.files.mat import read_mat
from oneof.storage.did_you_mean import did_you_mean

Labels = NDArray[np.intp]


@dataclass(frozen=True)
class Dataset:
    name: str
    x: NDArray[Any]  # [n, d] float32, or uint8 images [n, h, w] or [n, h, w, 3]; test rows last where there are such
    labels: Labels  # [n]; -1 where the file does not say
    classes: list[str]  # [c]
    candidates: NDArray[np.bool_] | None  # [n, c], where the set comes with candidate sets
    test: Labels | None  # rows of the publisher's test part
    votes: NDArray[np.intp] | None = None  # [n, c] how many people named each label; 0 where nobody was asked


class Figures(NamedTuple):
    """What the paper's appendix prints."""

    train: int
    test: int
    features: int
    classes: int
    average: float  # labels per set; for images, of the generated sets


Notes = dict[str, tuple[str, str]]  # figure -> what is found instead, and why


@dataclass(frozen=True)
class Named:
    title: str
    address: str  # the publisher's page
    licence: str
    read: Callable[[str, Path], Dataset]  # (name, folder)
    files: tuple[str, ...] = ()  # below the data folder
    download: str = ""  # address of the folder that serves the files; empty: by hand
    checksums: dict[str, str] = field(default_factory=dict)  # file -> SHA-256 of its uncompressed content
    folder: str = ""  # may stand in for `files`: the archive unpacked
    paper: Figures | None = None
    notes: Notes = field(default_factory=dict)


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load a set by name from `data_dir`, or from the folder that ONEOF_DATA names; digits needs neither.

    >>> digits = load("digits")
    >>> digits.x.shape, len(digits.classes)
    ((1797, 64), 10)
    """
    named = find(name)
    if not named.files:
        return named.read(name, Path())
    how = f"Run 'oneof data --get {name}', or take" if named.download else "Download"
    by_hand = "" if named.download else " by hand"
    unpacked = f" (or the folder {named.folder})" if named.folder else ""
    needs = f"{how} it{by_hand} from {named.address}; it needs {', '.join(named.files)}{unpacked}."
    folder = data_folder(data_dir)
    if folder is None:
        got = f"neither does. {needs}"
        raise ValueError(f"data_dir or the environment variable ONEOF_DATA must name the folder of data sets; {got}")
    if absent := missing(name, folder):
        raise ValueError(f"data set {name!r} must lie in {folder}; missing there: {', '.join(absent)}. {needs}")
    return named.read(name, folder)


def find(name: str) -> Named:
    """The row of a name, or an error that says which names there are."""
    if name not in NAMED:
        raise ValueError(f"data set must be one of {', '.join(NAMED)}; got {name!r}.{did_you_mean(name, NAMED)}")
    return NAMED[name]


def data_folder(data_dir: str | Path | None) -> Path | None:
    """The folder given, or the one that ONEOF_DATA names."""
    given = data_dir or os.environ.get("ONEOF_DATA")
    return Path(given) if given else None


def missing(name: str, folder: Path) -> list[str]:
    """The files of a set that are not in the folder, by the paths that they should have there."""
    named = find(name)
    unpacked = named.folder and (folder / named.folder).is_dir()
    files = [f"{named.folder}/{part}" for part in _BATCHES[name][:-1]] if unpacked else named.files
    return [file for file in files if not (folder / file).is_file()]


def _digits(name: str, folder: Path) -> Dataset:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Dataset(name, digits.data.astype(np.float32), digits.target.astype(np.intp), list("0123456789"), None, None)


def _idx(name: str, folder: Path) -> Dataset:
    images, labels, test_images, test_labels = (read_idx(folder / file) for file in NAMED[name].files)
    counts = [(len(images), labels.shape), (len(test_images), test_labels.shape)]
    shapes = {images.shape[1:], test_images.shape[1:]}
    if len(shapes) > 1 or any(shape != (n,) for n, shape in counts):
        got = f"got {counts} and {sorted(shapes)}."
        raise ValueError(f"{name} must hold one label per image, and images of one size; {got}")
    x, y = np.concatenate([images, test_images]), np.concatenate([labels, test_labels]).astype(np.intp)
    return Dataset(name, x, y, _CLASS_NAMES[name], None, np.arange(len(images), len(x)))


def _cifar(name: str, folder: Path) -> Dataset:
    x, labels, classes, test = read_cifar(cifar_path(name, folder), _BATCHES[name])
    return Dataset(name, x, labels, classes, None, np.arange(len(x) - test, len(x)))


def cifar_path(name: str, folder: Path) -> Path:
    """The unpacked folder where there is one, else the archive."""
    unpacked = folder / NAMED[name].folder
    return unpacked if unpacked.is_dir() else folder / NAMED[name].files[0]


def _with_votes(name: str, folder: Path) -> Dataset:
    """CIFAR-10 with people's votes on training images, or on test images; candidates are the labels that somebody named."""
    data, file = load("cifar10", folder), folder / NAMED[name].files[0]
    if name == "cifar10n":
        people = read_cifar10n(file)
        counts, truth = (people.labels[..., None] == np.arange(10)).sum(1), people.truth
        rows = slice(0, len(counts))
    else:
        counts = read_cifar10h(file)
        rows = slice(-len(counts), None)
        truth = data.labels[rows]
    if not np.array_equal(data.labels[rows], truth) or len(truth) != len(counts):
        raise ValueError(f"{NAMED[name].files[0]} must have votes on CIFAR-10's images, in its order; it has others.")
    votes = np.zeros((len(data.x), 10), dtype=np.intp)
    votes[rows] = counts
    named = votes > 0
    return replace(data, name=name, votes=votes, candidates=named | ~named.any(1, keepdims=True))


def _mat(name: str, folder: Path) -> Dataset:
    mat = read_mat(folder / NAMED[name].files[0])
    labels = np.full(len(mat.x), -1) if mat.labels is None else mat.labels
    classes = [str(j) for j in range(mat.candidates.shape[1])]
    return Dataset(name, mat.x.astype(np.float32), labels, classes, mat.candidates, None)


_CLASS_NAMES = {
    "mnist": list("0123456789"),
    "fashion-mnist": ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"],
    "kmnist": ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"],
}  # fmt: skip
_BATCHES = {  # training parts, the test part, the names
    "cifar10": ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch", "batches.meta"),
    "cifar100": ("train", "test", "meta"),
}  # fmt: skip
_PALM = "https://palm.seu.edu.cn/zhangml/Resources.htm"
NO_SETS = "no sets"
_GENERATED = "images come without candidates: the paper's average is of sets that it generated"
_ACADEMIC = "collected and pre-processed by M.-L. Zhang; for academic use, at one's own risk"


def _grey(
    title: str, address: str, licence: str, folder: str, served: str, average: float, note: str, *sums: str
) -> Named:
    """MNIST or a set of its form."""
    parts = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    files = tuple(f"{folder}/{part}-ubyte.gz" for part in parts)
    known, paper = dict(zip(files, sums, strict=True)), Figures(60000, 10000, 784, 10, average)
    return Named(title, address, licence, _idx, files, served, known, paper=paper, notes={"average": (NO_SETS, note)})


def _real(title: str, file: str, paper: Figures, sha256: str = "", notes: Notes | None = None) -> Named:
    """One of the sets that M.-L. Zhang's page offers, each as a .rar, which is unpacked by hand."""
    path = f"real/{file}"
    known = {path: sha256} if sha256 else {}
    return Named(title, _PALM, _ACADEMIC, _mat, (path,), checksums=known, paper=paper, notes=notes or {})


NAMED: dict[str, Named] = {
    "digits": Named("Digits", "https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits", "CC BY 4.0; comes with scikit-learn", _digits),
    "mnist": _grey(
        "MNIST", "http://yann.lecun.com/exdb/mnist/", "none stated", "mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",  # PyTorch's mirror: the publisher's page has stopped serving the files
        8.71, f"{_GENERATED}; 8.71 cannot come from the released generator, which is bounded by 5",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion-mnist": _grey(
        "Fashion-MNIST", "https://github.com/zalandoresearch/fashion-mnist", "MIT", "fashion-mnist",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/", 3.46, _GENERATED,
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    "kmnist": _grey(
        "Kuzushiji-MNIST", "https://codh.rois.ac.jp/kmnist/", "CC BY-SA 4.0", "kmnist",
        "https://codh.rois.ac.jp/kmnist/dataset/kmnist/", 3.87, _GENERATED,
        "7112ba9ec422d98de4885262d4a4dff14cc4fefb81c11ace8bf563a8255df5c3",
        "2a16eeae62da984b8bd24fa32e31d47291f01dac3fe84d5594f304f71e7d374b",
        "76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e",
        "a11dc742be8e781a40a92f53d6a4957e7b7d36df2faa097659131ebfd8fd60c6",
    ),
    # Of an archive the checksum is of the file as served; of a batch, of the rows in the publisher's binary form.
    "cifar10": Named(
        "CIFAR-10", "https://www.cs.toronto.edu/~kriz/cifar.html", "none stated", _cifar, ("cifar-10-python.tar.gz",),
        "https://www.cs.toronto.edu/~kriz/",
        {
            "cifar-10-python.tar.gz": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        "cifar-10-batches-py", Figures(50000, 10000, 3072, 10, 3.68), {"average": (NO_SETS, _GENERATED)},
    ),
    "cifar100": Named(
        "CIFAR-100", "https://www.cs.toronto.edu/~kriz/cifar.html", "none stated", _cifar, ("cifar-100-python.tar.gz",),
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-100-python.tar.gz": "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"},
        "cifar-100-python", Figures(50000, 10000, 3072, 100, 4.64), {"average": (NO_SETS, _GENERATED)},
    ),
    "cifar10n": Named(
        "CIFAR-10N: three people's votes on each training image", "http://www.noisylabels.com", "CC BY-NC 4.0", _with_votes,
        ("cifar10n/CIFAR-10_human.pt",),
        checksums={"cifar10n/CIFAR-10_human.pt": "873e69c39cb9b5e97fb6bae2d60bb59b38a5cbc31d2b868f7903dcb2b9dd2310"},
        notes={"outside": ("1067", "people err: of so many images nobody named the true label")},
    ),
    "cifar10h": Named(
        "CIFAR-10H: some fifty people's votes on each test image", "https://github.com/jcpeterson/cifar-10h", "CC BY-NC-SA 4.0", _with_votes,
        ("cifar10h/cifar10h-counts.npy",),
        checksums={"cifar10h/cifar10h-counts.npy": "9b36b4550349af56c79083356312eb4af856cc5fd3caf1f669d40b9d0bbb69ff"},
        notes={"outside": ("4", "people err: of so many images nobody named the true label")},
    ),
    "lost": _real(
        "Lost", "lost.mat", Figures(898, 224, 108, 16, 2.23), "42a8cc43e05578087e7b8ca194647829ec535dc4d0a86cf47f357c5eb3146e4f",
        {"seen": ("14", "two of the sixteen classes are candidates but no row's true label: the file has no example of them")},
    ),
    "birdsong": _real("BirdSong", "BirdSong.mat", Figures(3998, 1000, 38, 13, 2.18), "2170d46765a151ac80623d9a1242e0299802236e5574442bdb596bef90f50743"),
    "msrcv2": _real("MSRCv2", "MSRCv2.mat", Figures(1406, 352, 48, 23, 3.16), "948e4d443a5450308f05aa689bc82d9bcc7af699a113a6a81c40ef337a20c393"),
    "mirflickr": _real("Mirflickr", "Mirflickr.mat", Figures(2224, 556, 1536, 14, 2.76)),
    "malagasy": _real(
        "Malagasy", "Malagasy.mat", Figures(4243, 1069, 384, 44, 8.35),
        notes={"rows": ("5303", "the printed 1069 test rows are likely 1060: every other set is split 80/20, and 4243 + 1060 = 5303")},
    ),
    "soccer": _real("Soccer Player", "Soccer Player.mat", Figures(13978, 3494, 279, 171, 2.09)),
    "yahoo": _real("Yahoo! News", "Yahoo! News.mat", Figures(18393, 4598, 163, 219, 1.91)),
}  # fmt: skip

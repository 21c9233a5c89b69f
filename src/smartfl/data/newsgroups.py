"""20 Newsgroups as sparse TF-IDF or count vectors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Literal, get_args

import numpy as np
import torch

from smartfl.data.cache import Array, Decoded, cached
from smartfl.data.dataset import Dataset, Sparse
from smartfl.data.home import cache_home
from smartfl.data.newsgroups_corpus import Corpus, Newsgroups, Split
from smartfl.errors import UserError

Norm = Literal["l2", "none"]
Removable = Literal["headers", "footers", "quotes"]

NEWSGROUPS = Newsgroups()


@dataclass(frozen=True)
class Features:
    """How documents become vectors; see ``newsgroups``."""

    split: Split = "random"
    max_features: int = 10_000
    norm: Norm = "l2"
    remove: tuple[Removable, ...] = ()
    sublinear_tf: bool = True
    stop_words: bool = True
    idf: bool = True

    def __post_init__(self) -> None:
        for setting, accepted in (("split", get_args(Split)), ("norm", get_args(Norm))):
            if getattr(self, setting) not in accepted:
                raise UserError(f"{setting} = {getattr(self, setting)!r}: accepted are {', '.join(accepted)}")
        if unknown := [part for part in self.remove if part not in get_args(Removable)]:
            raise UserError(f"remove = {unknown!r}: accepted are {', '.join(get_args(Removable))}")
        if self.max_features < 1:
            raise UserError(f"max_features = {self.max_features}: at least 1 is needed")


def newsgroups(
    split: Split = "random",
    max_features: int = 10_000,
    norm: Norm = "l2",
    remove: tuple[Removable, ...] = (),
    sublinear_tf: bool = True,
    stop_words: bool = True,
    idf: bool = True,
    directory: str | None = None,
    download: bool = False,
) -> Dataset:
    """20 Newsgroups (Lang 1995), 18,846 messages in 20 groups, as sparse TF-IDF vectors.

    split          "random": all documents shuffled with a fixed seed, 2,000 of them for testing (like the paper's
                   18K/2K, which counts an older release); "bydate": 11,314 earlier ones to train, 7,532 later to test
    max_features   vocabulary: the most frequent terms of the training part; vocabulary and idf see nothing else
    norm           "l2" or "none"
    remove         any of "headers", "footers", "quotes"; without headers the task is much harder
    sublinear_tf   1 + log(tf) for tf
    stop_words     leave English stop words out
    idf            weigh terms by their inverse document frequency.  scikit-learn's ``fetch_20newsgroups_vectorized``
                   has plain counts in rows of unit length: idf, sublinear_tf and stop_words all false
    """
    features = Features(split, max_features, norm, tuple(remove), sublinear_tf, stop_words, idf)
    if download:
        from smartfl.data.fetch import ensure

        ensure(NEWSGROUPS.name, directory)
    return load(NEWSGROUPS, features, directory)


def load(source: Newsgroups, features: Features, directory: str | None = None) -> Dataset:
    """The collection ``source`` as vectors, from the cache where it has them."""
    path = source.find(directory)

    def build() -> dict[str, Array]:
        return vectorise(source, source.read(path), features)

    settings = {**asdict(features), "remove": sorted(set(features.remove)), "scikit-learn": version("scikit-learn")}
    decoded = cached(source.name, [path], build, lambda _: None, cache_home(directory), settings)
    return _dataset(source, decoded)


def _dataset(source: Newsgroups, decoded: Decoded) -> Dataset:
    arrays = {name: torch.from_numpy(array) for name, array in decoded.arrays.items()}
    width = int(arrays["width"])

    def rows(split: str) -> Sparse:
        return Sparse(arrays[f"{split}_starts"], arrays[f"{split}_columns"], arrays[f"{split}_values"], width)

    return Dataset(
        name=source.name,
        train=rows("train"),
        train_labels=arrays["train_labels"],
        test=rows("test"),
        test_labels=arrays["test_labels"],
        num_classes=source.groups,
    )


def vectorise(source: Newsgroups, corpus: Corpus, features: Features) -> dict[str, Array]:
    """TF-IDF rows of both splits in CSR form; the vectoriser is fitted on the training documents alone."""
    from sklearn.datasets import _twenty_newsgroups as stripping
    from sklearn.feature_extraction.text import TfidfVectorizer

    strippers = {
        "headers": stripping.strip_newsgroup_header,
        "footers": stripping.strip_newsgroup_footer,
        "quotes": stripping.strip_newsgroup_quoting,
    }
    train, test = source.split(corpus, features.split)
    texts = list(corpus.texts)
    # Headers, footers, quotes: the order in which scikit-learn applies them, and footers are found by position.
    for part in ("headers", "footers", "quotes"):
        if part in features.remove:
            texts = [strippers[part](text) for text in texts]
    vectoriser = TfidfVectorizer(
        sublinear_tf=features.sublinear_tf,
        use_idf=features.idf,
        max_features=features.max_features,
        norm=None if features.norm == "none" else features.norm,
        stop_words="english" if features.stop_words else None,
        dtype=np.float32,
    )
    rows = {
        "train": vectoriser.fit_transform([texts[i] for i in train]),
        "test": vectoriser.transform([texts[i] for i in test]),
    }
    arrays: dict[str, Array] = {"width": np.array(rows["train"].shape[1], np.int64)}
    for split, index in (("train", train), ("test", test)):
        arrays[f"{split}_starts"] = rows[split].indptr.astype(np.int64)
        arrays[f"{split}_columns"] = rows[split].indices.astype(np.int32)
        arrays[f"{split}_values"] = rows[split].data.astype(np.float32)
        arrays[f"{split}_labels"] = corpus.labels[index]
    return arrays

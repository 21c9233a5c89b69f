"""20 Newsgroups from a handful of documents in scikit-learn's file."""

from __future__ import annotations

import math
import pickle
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from real_formats import Malicious, newsgroups_file

from smartfl.data.newsgroups import Features, load, newsgroups
from smartfl.data.newsgroups_corpus import CACHE_FILE, Newsgroups
from smartfl.errors import UserError
from smartfl.registry import build

GROUPS = ("rec.autos", "sci.med", "sci.space")
DOCUMENTS = {
    "train": [
        ("sci.space", "10", "From: ann@x\n\nrocket rocket orbit"),
        ("sci.med", "11", "From: bob@y\n\ndoctor orbit"),
        ("rec.autos", "12", "From: cy@z\n\nengine the engine\n\n--\nsignature"),
        ("sci.med", "13", "From: di@w\n\nIn article x writes:\n> quoted\nnurse"),
    ],
    "test": [
        ("sci.space", "20", "From: ann@x\n\nrocket telescope"),
        ("rec.autos", "21", "From: eve@v\n\nengine"),
    ],
}
SIZES = tuple(sum(len(text) for _, _, text in DOCUMENTS[split]) for split in ("train", "test"))
SMALL = Newsgroups(documents=(4, 2), utf8_bytes=(SIZES[0], SIZES[1]), groups=3, test_size=2)
BY_DATE = Features(split="bydate", max_features=100)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SMARTFL_CACHE", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "sklearn"))
    newsgroups_file(tmp_path / CACHE_FILE, DOCUMENTS)
    return tmp_path


def dense(inputs: torch.Tensor | object) -> np.ndarray:
    return inputs[torch.arange(len(inputs))].numpy()  # type: ignore[index,arg-type]


def test_tf_idf_by_hand(home: Path) -> None:
    """Without headers, footers and quotes the training documents are "rocket rocket orbit", "doctor orbit",
    "engine the engine" and "nurse" ("the" is a stop word; "In article x writes:" goes with the quote).

    idf(t) = ln((1 + 4)/(1 + df)) + 1: orbit (df 2) 1.5108, the others (df 1) 1.9163. Sublinear tf of 2 is 1 + ln 2.
    Document 1 is (rocket 1.6931·1.9163, orbit 1.5108) over its norm; the test's "telescope" is not in the vocabulary.
    """
    features = replace(BY_DATE, remove=("headers", "footers", "quotes"))
    data = load(SMALL, features, str(home))
    assert data.shape == (5,)  # doctor, engine, nurse, orbit, rocket
    once, twice, orbit = math.log(5 / 2) + 1, (1 + math.log(2)) * (math.log(5 / 2) + 1), math.log(5 / 3) + 1
    space = np.array([0, 0, 0, orbit, twice]) / math.hypot(orbit, twice)
    med = np.array([once, 0, 0, orbit, 0]) / math.hypot(once, orbit)
    # Documents come sorted by group and file name: autos 12, med 11, med 13, space 10.
    np.testing.assert_allclose(dense(data.train), [[0, 1, 0, 0, 0], med, [0, 0, 1, 0, 0], space], atol=1e-6)
    assert data.train_labels.tolist() == [0, 1, 1, 2]
    np.testing.assert_allclose(dense(data.test), [[0, 1, 0, 0, 0], [0, 0, 0, 0, 1]], atol=1e-6)
    assert data.test_labels.tolist() == [0, 2]
    assert data.num_classes == 3


def test_settings_reach_the_vectoriser(home: Path) -> None:
    """norm = none and plain tf: "rocket" twice weighs 2·1.9163. Stop words kept: "the" is a term."""
    features = replace(BY_DATE, remove=("headers", "footers", "quotes"), norm="none", sublinear_tf=False)
    assert dense(load(SMALL, features, str(home)).train).max() == pytest.approx(2 * (math.log(5 / 2) + 1), abs=1e-6)
    assert load(SMALL, replace(features, stop_words=False), str(home)).shape == (6,)
    assert load(SMALL, replace(features, max_features=2), str(home)).shape == (2,)
    assert dense(load(SMALL, replace(features, idf=False), str(home)).train).max() == 2  # plain counts


def test_parts_are_kept_unless_removed(home: Path) -> None:
    """Headers add the words of the From lines, footers "signature", quotes "quoted", "article", "writes"."""
    bare = replace(BY_DATE, remove=("headers", "footers", "quotes"))
    widths = {r: load(SMALL, replace(bare, remove=r), str(home)).shape[0] for r in [(), ("headers",), bare.remove]}
    assert widths[bare.remove] < widths[("headers",)] < widths[()]


def test_the_vectoriser_never_sees_test_text(home: Path) -> None:
    """Other test documents, the same training rows bit for bit."""
    before = dense(load(SMALL, BY_DATE, str(home)).train)
    changed = {**DOCUMENTS, "test": [("sci.space", "20", "x " * 8 + "rocket"), ("rec.autos", "21", "orbit orbit new")]}
    newsgroups_file(home / CACHE_FILE, changed)
    np.testing.assert_array_equal(dense(load(SMALL, BY_DATE, str(home)).train), before)


def test_the_random_split(home: Path) -> None:
    """All six documents, two to test, the same two every time and whatever the order in the file."""
    data = load(SMALL, Features(max_features=100), str(home))
    assert (len(data.train), len(data.test)) == (4, 2)
    corpus = SMALL.read(home / CACHE_FILE)
    train, test = SMALL.split(corpus, "random")
    assert sorted([*train, *test]) == list(range(6))
    newsgroups_file(home / CACHE_FILE, {split: rows[::-1] for split, rows in DOCUMENTS.items()})
    again = SMALL.read(home / CACHE_FILE)
    assert again.texts == corpus.texts
    assert SMALL.split(again, "random")[1].tolist() == test.tolist()


def test_the_second_load_comes_from_the_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warm load must not read the documents: reading is made impossible."""
    cold = load(SMALL, BY_DATE, str(home))

    def unread(*_: object) -> None:
        raise AssertionError("the documents were read again")

    monkeypatch.setattr(Newsgroups, "read", unread)
    warm = load(SMALL, BY_DATE, str(home))
    np.testing.assert_array_equal(dense(warm.train), dense(cold.train))
    with pytest.raises(AssertionError, match="read again"):
        load(SMALL, replace(BY_DATE, norm="none"), str(home))


def test_scikit_learns_own_directory_is_searched(home: Path) -> None:
    (home / "sklearn").mkdir()
    (home / CACHE_FILE).rename(home / "sklearn" / CACHE_FILE)
    assert SMALL.find(home) == home / "sklearn" / CACHE_FILE


def test_missing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "sklearn"))
    with pytest.raises(UserError, match=f"{CACHE_FILE}.*smartfl data fetch 20newsgroups") as caught:
        newsgroups(directory=str(tmp_path))
    assert str(tmp_path / "sklearn") in str(caught.value)


def test_a_pickle_with_code_is_refused(home: Path) -> None:
    trap = home / "trap"
    (home / CACHE_FILE).write_bytes(zlib.compress(pickle.dumps({"train": Malicious(trap), "test": {}})))
    with pytest.raises(UserError, match=rf"{CACHE_FILE} is refused: its pickle holds the global (_io|io)\.open"):
        load(SMALL, BY_DATE, str(home))
    assert not trap.exists()
    assert not (home / "cache").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "truncated"),
        (b"plain text", "cannot be read"),
        (zlib.compress(pickle.dumps([1, 2])), "not scikit-learn's 20 newsgroups file"),
        (zlib.compress(pickle.dumps({"train": {"data": []}, "test": 3})), "not scikit-learn's"),
        (zlib.compress(pickle.dumps({"train": {}, "test": {}}))[:-3], "truncated"),
    ],
)
def test_other_files_are_refused(home: Path, content: bytes, complaint: str) -> None:
    (home / CACHE_FILE).write_bytes(content)
    with pytest.raises(UserError, match=complaint) as caught:
        load(SMALL, BY_DATE, str(home))
    assert CACHE_FILE in str(caught.value)


def test_a_missing_document_is_refused(home: Path) -> None:
    newsgroups_file(home / CACHE_FILE, {**DOCUMENTS, "train": DOCUMENTS["train"][1:]})
    with pytest.raises(UserError, match="holds 3 train documents, expected 4"):
        load(SMALL, BY_DATE, str(home))


def test_other_text_is_warned_of(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(replace(SMALL, utf8_bytes=(SIZES[0], SIZES[1] + 1)), BY_DATE, str(home))
    assert "the test documents are not exactly the published ones" in caplog.text
    assert "train documents" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"split": "date"}, "data.split = 'date'"),
        ({"norm": "l1"}, "data.norm = 'l1'"),
        ({"remove": ["body"]}, r"data\.remove.*'body'"),
        ({"max_features": 0}, "max_features = 0: at least 1"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        build("datasets", "20newsgroups", settings, "data")
    with pytest.raises(UserError, match=next(iter(settings))):
        newsgroups(**settings)  # type: ignore[arg-type]

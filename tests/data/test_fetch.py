"""Downloads from a server on this machine: mirrors, checksums, nothing left behind."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from real_formats import mnist_arrays, small_mnist, write_mnist

import smartfl.data.fetch as fetching
from smartfl.data.fetch import NAMES, RESOURCES, Resource, ensure, fetch, locate
from smartfl.data.mnist import PARTS
from smartfl.data.newsgroups_corpus import CACHE_FILE, Newsgroups
from smartfl.data.progress import bar
from smartfl.errors import FetchError, UserError

ARRAYS = mnist_arrays()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address at which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def resources(folder: Path, *mirrors: str, algorithm: str = "sha256") -> dict[str, tuple[Resource, ...]]:
    """The four MNIST files in ``folder`` with their true checksums."""
    files = [f"{file}.gz" for file in PARTS.values()]
    return {
        "mnist": tuple(
            Resource(
                f"MNIST/raw/{file}",
                f"{algorithm}:{hashlib.new(algorithm, (folder / file).read_bytes()).hexdigest()}",
                tuple(mirror + file for mirror in mirrors),
            )
            for file in files
        )
    }


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_download_lands_where_the_loader_looks(served: tuple[Path, str], tmp_path: Path, algorithm: str) -> None:
    folder, address = served
    write_mnist(folder, ARRAYS, packed=True)
    home = tmp_path / "new/home"
    files = fetch("mnist", home, progress=bar, resources=resources(folder, address, algorithm=algorithm))
    assert files == locate("mnist", home)
    assert sorted(p.name for p in home.iterdir()) == ["MNIST"]
    data = small_mnist(ARRAYS).load(str(home), "refuse")
    np.testing.assert_array_equal(data.train.values[:, 0].numpy(), ARRAYS["train"])


def test_a_dead_mirror_is_passed_over(served: tuple[Path, str], tmp_path: Path) -> None:
    """The first address has no such files (404), the second is no server at all, the third has them."""
    folder, address = served
    write_mnist(folder, ARRAYS, packed=True)
    mirrors = (f"{address}nowhere/", "http://127.0.0.1:9/", address)
    assert len(fetch("mnist", tmp_path / "home", resources=resources(folder, *mirrors))) == 4


def test_a_mirror_with_other_content_is_passed_over(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, address = served
    write_mnist(folder, ARRAYS, packed=True)
    write_mnist(folder / "forged", mnist_arrays(seed=9), packed=True)
    fetch("mnist", tmp_path / "home", resources=resources(folder, f"{address}forged/", address))
    data = small_mnist(ARRAYS).load(str(tmp_path / "home"), "refuse")
    np.testing.assert_array_equal(data.train.values[:, 0].numpy(), ARRAYS["train"])


@pytest.mark.parametrize("existing", [False, True])
def test_a_wrong_checksum_is_refused_and_nothing_is_left(
    served: tuple[Path, str], tmp_path: Path, existing: bool
) -> None:
    """The last of the four files is forged: the first three must not stay either."""
    folder, address = served
    write_mnist(folder, ARRAYS, packed=True)
    wanted = resources(folder, address)
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(b"forged")
    home = tmp_path / "deep/home"
    if existing:
        home.mkdir(parents=True)
        (home / "mine.txt").write_text("keep")
    with pytest.raises(FetchError, match=r"t10k-labels-idx1-ubyte\.gz cannot be downloaded.*refused: its checksum"):
        fetch("mnist", home, resources=wanted)
    if existing:
        assert [p.name for p in home.iterdir()] == ["mine.txt"]
    else:
        assert not (tmp_path / "deep").exists()


def test_no_mirror_answers(tmp_path: Path) -> None:
    lost = {"mnist": (Resource("a", "md5:0", ("http://127.0.0.1:9/a", "http://127.0.0.1:9/b")),)}
    with pytest.raises(FetchError, match=r"127\.0\.0\.1:9/a .*127\.0\.0\.1:9/b "):
        fetch("mnist", tmp_path / "home", resources=lost)
    assert not (tmp_path / "home").exists()


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(UserError, match="'mnist' cannot be written to"):
        fetch("mnist", tmp_path / "file", resources={"mnist": ()})


def test_unknown_names(tmp_path: Path) -> None:
    for call in (fetch, locate):
        with pytest.raises(UserError, match="NAME = 'imagenet': accepted are mnist, fashion-mnist, cifar10"):
            call("imagenet", tmp_path)


def test_ensure_downloads_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(fetching, "fetch", lambda name, directory: asked.append(name) or ())
    ensure("mnist", tmp_path)
    write_mnist(tmp_path, ARRAYS, packed=True)
    assert len(ensure("mnist", tmp_path)) == 4
    assert asked == ["mnist"]


def test_every_dataset_but_the_newsgroups_has_checked_mirrors() -> None:
    assert set(RESOURCES) == set(NAMES) - {"20newsgroups"}
    for files in RESOURCES.values():
        for file in files:
            kind, _, digest = file.checksum.partition(":")
            assert len(digest) == {"sha256": 64, "md5": 32}[kind]
            assert len(file.urls) >= 2
            assert all(url.endswith(Path(file.path).name) for url in file.urls)


@pytest.mark.parametrize("honest", [True, False])
def test_newsgroups_through_scikit_learn(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, honest: bool
) -> None:
    """scikit-learn's own downloader against our server: its file is what we read; a wrong checksum leaves nothing."""
    from sklearn.datasets import _twenty_newsgroups as theirs

    folder, address = served
    with tarfile.open(folder / "news.tar.gz", "w:gz") as tar:
        for split in ("train", "test"):
            for group in ("sci.med", "sci.space"):
                text = f"From: me\n\n{split} {group} café".encode("latin1")
                info = tarfile.TarInfo(f"20news-bydate-{split}/{group}/1{len(group)}")
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text))
    digest = hashlib.sha256((folder / "news.tar.gz").read_bytes()).hexdigest()
    monkeypatch.setattr(
        theirs,
        "ARCHIVE",
        theirs.ARCHIVE._replace(url=f"{address}news.tar.gz", checksum=digest if honest else "0" * 64),
    )
    home = tmp_path / "home"
    if not honest:
        with pytest.raises(FetchError, match="20newsgroups cannot be downloaded by scikit-learn"):
            fetch("20newsgroups", home)
        assert not home.exists()
        return
    assert fetch("20newsgroups", home) == (home / CACHE_FILE,)
    assert [p.name for p in home.iterdir()] == [CACHE_FILE]
    corpus = Newsgroups(documents=(2, 2), groups=2).read(home / CACHE_FILE)
    assert corpus.groups == ("sci.med", "sci.space")
    assert corpus.texts[1].endswith("train sci.med café")

"""The cache of the embedded stack: pinned, verified, complete or absent."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import re
import tarfile
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from forebay.devstack import artifacts, download, ivy
from forebay.devstack.archive import unpack
from forebay.devstack.artifact_cache import is_complete, locked, publish, write_manifest
from forebay.devstack.artifacts import KAFKA, REGISTRY, ArtifactSet, MavenFile, load_set
from forebay.errors import ChecksumError, DownloadError, JavaMissingError
from forebay.jvm.java import find_java, major_version


def sample_set(content: bytes) -> ArtifactSet:
    digest = hashlib.sha256(content).hexdigest()
    return ArtifactSet("sample", "Sample", "1", (MavenFile("g", "a", "1", len(content), digest),))


def delivers(content: bytes) -> Callable[[ArtifactSet, Path, Callable[[int], None]], Path]:
    """A stand-in for the network: every file arrives with this content."""

    def retrieve(wanted: ArtifactSet, work: Path, on_bytes: Callable[[int], None]) -> Path:
        files = work / "files"
        files.mkdir()
        for artifact in wanted.artifacts:
            (files / artifact.file_name).write_bytes(content)
        return files

    return retrieve


def visible(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.endswith(".lock"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "cache"
    monkeypatch.setenv("FOREBAY_CACHE", str(root))
    return root


@pytest.mark.parametrize("name", [KAFKA, REGISTRY])
def test_every_artifact_is_pinned_by_version_size_and_sha256(name: str) -> None:
    pinned = load_set(name).artifacts
    assert pinned
    for artifact in pinned:
        assert re.fullmatch(r"[0-9a-f]{64}", artifact.sha256)
        assert artifact.size > 0
        assert artifact.version[0].isdigit()
    assert len({artifact.file_name for artifact in pinned}) == len(pinned)


def test_no_host_of_a_package_registry_stands_in_the_devstack() -> None:
    folder = Path(artifacts.__file__).parent
    assert "://" not in (folder / "artifacts.toml").read_text()
    for path in folder.glob("*.py"):
        assert not re.search(r"repo1?\.|maven\.org|mvnrepository", path.read_text()), path.name


def test_broker_and_registry_are_downloaded_apart() -> None:
    assert load_set(KAFKA).size < 60_000_000 < load_set(REGISTRY).size


def test_a_good_download_is_cached_and_not_repeated(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ivy, "retrieve", delivers(b"good"))
    home = download.resolve(sample_set(b"good"))
    assert (home / "a-1.jar").read_bytes() == b"good"
    monkeypatch.setattr(ivy, "retrieve", None)
    assert download.resolve(sample_set(b"good")) == home


def test_a_wrong_checksum_names_file_expected_and_found_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ivy, "retrieve", delivers(b"evil"))
    with pytest.raises(ChecksumError) as caught:
        download.resolve(sample_set(b"good"))
    text = str(caught.value)
    assert "a-1.jar" in text
    assert hashlib.sha256(b"good").hexdigest() in text
    assert hashlib.sha256(b"evil").hexdigest() in text
    assert visible(cache) == []


def test_a_truncated_file_in_the_cache_is_downloaded_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ivy, "retrieve", delivers(b"good"))
    home = download.resolve(sample_set(b"good"))
    (home / "a-1.jar").write_bytes(b"go")
    assert (download.resolve(sample_set(b"good")) / "a-1.jar").read_bytes() == b"good"


def test_what_a_killed_download_left_behind_is_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / ".sample-download-dead").mkdir(parents=True)
    monkeypatch.setattr(ivy, "retrieve", delivers(b"good"))
    home = download.resolve(sample_set(b"good"))
    assert visible(cache) == [home.name]


def test_a_cached_set_is_used_in_silence(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ivy, "retrieve", delivers(b"good"))
    download.resolve(sample_set(b"good"))
    assert "Downloading Sample 1" in capsys.readouterr().err
    download.resolve(sample_set(b"good"))
    assert capsys.readouterr() == ("", "")


def test_a_folder_without_a_manifest_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"x")
    assert not is_complete(tmp_path)
    write_manifest(tmp_path)
    assert is_complete(tmp_path)
    (tmp_path / "a.jar").unlink()
    assert not is_complete(tmp_path)


def test_publishing_replaces_a_damaged_folder(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a").write_text("new")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "torso").write_text("old")
    publish(tmp_path / "new", tmp_path / "home")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["a"]


def _hold(path: Path, held: Event, release: Event) -> None:
    with locked(path):
        held.set()
        release.wait(30)


def test_one_process_at_a_time_holds_the_lock_and_the_other_is_told_to_wait(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path / "lock", held, release))
    other.start()
    assert held.wait(30)
    told: list[bool] = []

    def on_wait() -> None:
        told.append(True)
        release.set()

    with locked(tmp_path / "lock", on_wait):
        assert told == [True]
    other.join(30)
    assert other.exitcode == 0


def tar_with(tmp_path: Path, member: tarfile.TarInfo, content: bytes = b"") -> Path:
    path = tmp_path / "bad.tar.gz"
    member.size = len(content)
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(member, io.BytesIO(content))
    return path


def test_an_archive_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    archive = tar_with(tmp_path, tarfile.TarInfo("../escaped"), b"x")
    with pytest.raises(DownloadError, match="not safe to unpack"):
        unpack(archive, tmp_path / "target")
    assert not (tmp_path / "escaped").exists()


def test_an_archive_cannot_link_outside_its_folder(tmp_path: Path) -> None:
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    with pytest.raises(DownloadError, match="not safe to unpack"):
        unpack(tar_with(tmp_path, link), tmp_path / "target")


def test_the_reason_of_a_failed_download_is_the_telling_line() -> None:
    log = "a\n module not found: g#a;1\n Server access error at url x (java.net.ConnectException: refused)\n"
    assert ivy.failure_reason(log).startswith("Server access error")
    assert ivy.failure_reason("") == "Ivy said nothing"


@pytest.mark.parametrize(
    ("banner", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023', 21),
        ("no", 0),
    ],
)
def test_the_major_version_of_java_is_read_from_its_banner(banner: str, major: int) -> None:
    assert major_version(banner) == major


def test_without_java_the_error_says_what_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaMissingError, match="no java on the PATH"):
        find_java()


def test_a_java_that_is_too_old_is_named_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissingError, match="is version 11"):
        find_java()

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

import dyclu
from dyclu import DyClu, storage
from dyclu.errors import DamagedFile, FileError, ForeignFile, NewerFile, OlderFile
from dyclu.storage import Saved


@pytest.fixture
def policy() -> DyClu:
    policy = DyClu(2)
    rng = np.random.default_rng(0)
    for user in ("ana", 7, "ana", "béa\n", 7):
        policy.learn(user, rng.normal(size=2), rng.normal())
    return policy


@pytest.fixture
def file(policy: DyClu, tmp_path: Path) -> Path:
    policy.save(tmp_path / "policy.dyclu")
    return tmp_path / "policy.dyclu"


def test_read_returns_what_write_wrote(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "none": np.zeros((0, 4), dtype=np.int64)}
    saved = Saved("Kind", {"dim": 2}, {"clock": 3, "owner": ["1", 1]}, arrays)
    storage.write(tmp_path / "file", saved)
    back = storage.read(tmp_path / "file")
    assert (back.kind, back.options, back.state) == (saved.kind, saved.options, saved.state)
    assert back.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert back.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(back.arrays[name], array)


def test_the_same_state_gives_the_same_bytes(policy: DyClu, file: Path) -> None:
    policy.save(file.with_name("again"))
    assert file.read_bytes() == file.with_name("again").read_bytes()


def test_loading_a_truncated_file_raises_an_error(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(0, len(whole), 7):
        file.write_bytes(whole[:length])
        with pytest.raises(FileError, match=r"policy\.dyclu"):
            dyclu.load(file)


def test_loading_a_file_with_an_altered_byte_raises_an_error(file: Path) -> None:
    whole = file.read_bytes()
    rng = np.random.default_rng(1)
    for place in (*range(60), *rng.choice(len(whole), 600, replace=False)):
        altered = bytearray(whole)
        altered[place] ^= int(rng.integers(1, 256))
        file.write_bytes(altered)
        with pytest.raises(FileError, match=r"policy\.dyclu"):
            dyclu.load(file)


def test_loading_a_file_with_an_appended_byte_raises_an_error(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(DamagedFile, match="digest"):
        dyclu.load(file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"PK\x03\x04",
        b"{}",
        b"\x80\x04.",
        b"dyclu-policy",
        b"dyclu-policy one\n",
        b"dyclu-policy 0\n",
        b"dyclu-policy " + b"9" * 5000,
    ],
)
def test_loading_a_file_of_another_kind_raises_foreign_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ForeignFile, match="not a saved policy"):
        dyclu.load(tmp_path / "file")


@pytest.mark.parametrize(("version", "error"), [(1, OlderFile), (99, NewerFile)])
def test_loading_another_format_version_raises_older_or_newer_file(
    file: Path, version: int, error: type[FileError]
) -> None:
    file.write_bytes(file.read_bytes().replace(b"policy 2", b"policy %d" % version, 1))
    with pytest.raises(error, match=f"format version {version}, this dyclu reads version 2"):
        dyclu.load(file)


def test_loading_a_file_with_an_edited_header_raises_damaged_file(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"ridge": 0.1', b'"ridge": 9.1', 1))
    with pytest.raises(DamagedFile, match="digest"):
        dyclu.load(file)


def test_loading_an_unknown_kind_of_policy_names_it_in_the_error(tmp_path: Path) -> None:
    storage.write(tmp_path / "file", Saved("Nobody", {}, {}, {}))
    with pytest.raises(ForeignFile, match="'Nobody'"):
        dyclu.load(tmp_path / "file")


@pytest.mark.parametrize(
    "saved",
    [
        Saved("DyClu", {}, {}, {}),
        Saved("DyClu", {"dim": 2}, {"clock": 0, "owner": ["ana"], "residuals": {}}, {}),
        Saved("LinUCB", {"dim": 2}, {"keys": ["ana", "bea"]}, {"gram": np.zeros((1, 2, 2))}),
        Saved("Uniform", {"dim": 2}, {}, {}),
    ],
)
def test_invalid_contents_with_a_valid_digest_raise_an_error(tmp_path: Path, saved: Saved) -> None:
    storage.write(tmp_path / "file", saved)
    with pytest.raises(FileError, match="makes no sense"):
        dyclu.load(tmp_path / "file")


def test_a_file_with_an_option_of_before_is_an_older_file(tmp_path: Path) -> None:
    storage.write(tmp_path / "file", Saved("DyClu", {"dim": 2, "colour": "red"}, {}, {}))
    with pytest.raises(OlderFile, match="no longer exist: colour") as found:
        dyclu.load(tmp_path / "file")
    assert str(found.value).startswith(f"{tmp_path / 'file'}: ")


def test_a_header_that_is_not_json_raises_damaged_file(tmp_path: Path) -> None:
    body = b"dyclu-policy 2\nnonsense\n"
    (tmp_path / "file").write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(DamagedFile, match="makes no sense"):
        dyclu.load(tmp_path / "file")


def test_saving_keeps_permissions_and_follows_links(policy: DyClu, file: Path) -> None:
    file.chmod(0o600)
    (file.parent / "link").symlink_to(file)
    policy.learn("ana", [1.0, 0.0], 1.0)
    policy.save(file.parent / "link")
    assert (file.parent / "link").is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600
    back = dyclu.load(file)
    assert isinstance(back, DyClu)
    assert back.segments == policy.segments


@pytest.mark.parametrize("path", ["", ".", "/", "a\0b"])
def test_invalid_paths_raise_an_error(policy: DyClu, path: str) -> None:
    with pytest.raises(FileError, match="cannot write"):
        policy.save(path)
    with pytest.raises(FileError, match="cannot read"):
        dyclu.load(path)


def test_a_missing_file_or_folder_is_named_in_the_error(policy: DyClu, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="nowhere"):
        dyclu.load(tmp_path / "nowhere")
    with pytest.raises(FileError, match="cannot read"):
        dyclu.load(tmp_path)
    with pytest.raises(FileError, match="cannot write"):
        policy.save(tmp_path / "nowhere" / "file")


def test_an_error_while_writing_leaves_the_old_file_unchanged(
    policy: DyClu, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.read_bytes()
    policy.learn("ana", [1.0, 0.0], 1.0)

    def crash(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(FileError, match="No space left"):
        policy.save(file)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_the_file_begins_with_its_format_and_a_line_of_json(file: Path) -> None:
    first, second = file.read_bytes().split(b"\n")[:2]
    assert first == b"dyclu-policy 2"
    assert json.loads(second)["options"]["dim"] == 2

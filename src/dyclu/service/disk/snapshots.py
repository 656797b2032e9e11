"""Snapshots: a `State` on disk, so that a start need not replay the whole journal.

A snapshot is two files, written one after the other, each atomic and with its own digest:
``<epoch>-<line>.policy`` is what `policy.save` writes, ``<epoch>-<line>.state`` the rest. The epoch
counts erasures. A snapshot is used only if both files are whole, were made for the policy that the
settings name, with the same code (`provenance`), and since the last erasure. Otherwise the one
before it is used, and without any the whole journal is replayed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Thread

from dyclu import policies
from dyclu.errors import FileError
from dyclu.service.disk.journal import JournalReader
from dyclu.service.disk.provenance import difference, made_by
from dyclu.service.engine.state import State
from dyclu.service.spec import PolicySpec
from dyclu.storage import Saved, damaged_on_error, make_folder, read, write

LOG = logging.getLogger("dyclu.service")

JOURNAL, SNAPSHOTS = "journal.db", "snapshots"
"""Names in a tenant's folder."""

ORPHANED = 71
"""Exit status of a snapshot process whose service has ended."""

KIND = "service-state"
KEPT = 2
"""Snapshots kept: the latest, and one to fall back on."""

_FILE = re.compile(r"\.?[0-9]{8}-[0-9]{20}\.(state|policy)(\.[0-9]+-[0-9]+)?")
"""File names of snapshots; a draft starts with a dot and ends with its process and number."""


class Snapshots:
    """The snapshots of one tenant.

    Attributes
    ----------
    complaints : list of str
        Problems with the snapshots that were found.
    used : int
        Line of the snapshot that `latest` returned, 0 if there was none.
    owes : bool
        Whether a file that should have been removed may still exist.

    Examples
    --------
    >>> spec = PolicySpec("linucb", 2, {"alpha": 0.5})
    >>> snapshots = Snapshots(Path("snapshots"), spec)
    >>> snapshots.write(State(spec.make()), epoch=0)
    >>> snapshots.latest(epoch=0).total.seq
    0
    """

    def __init__(self, folder: Path, spec: PolicySpec) -> None:
        self.folder, self.spec = folder, spec
        self.complaints: list[str] = []
        self.used = 0
        self.owes = False
        # Compute the digest now, while the source files are those that were loaded.
        made_by()
        make_folder(folder)

    def write(self, state: State, *, epoch: int) -> None:
        """Write a snapshot of the state, and remove those that are no longer needed."""
        stem = self.folder / f"{epoch:08d}-{state.total.seq:020d}"
        state.policy.save(stem.with_suffix(".policy"))
        told, arrays = state.dump()
        options = {"spec": asdict(self.spec), "made_by": made_by()}
        write(stem.with_suffix(".state"), Saved(KIND, options, told, arrays))
        self.purge(epoch=epoch)

    def latest(self, *, epoch: int, upto: int | None = None) -> State | None:
        """Return the latest whole snapshot not beyond line `upto`, or None; complain of others."""
        for stem in self._found(epoch):
            if upto is not None and int(stem.name.partition("-")[2]) > upto:
                self._complain(
                    f"snapshot {stem.name} is ahead of the journal, which ends at {upto}"
                )
                continue
            try:
                state = self._read(stem)
            except (FileError, OSError) as error:
                self._complain(f"snapshot {stem.name} is not used: {error}")
                continue
            if state is not None:
                self.used = state.total.seq
                return state
        return None

    def _read(self, stem: Path) -> State | None:
        saved = read(stem.with_suffix(".state"))
        if saved.kind != KIND or saved.options["spec"] != asdict(self.spec):
            LOG.warning("snapshot %s was made by another policy; it is not used", stem.name)
            return None
        if differs := difference(saved.options.get("made_by")):
            raise FileError(f"{differs}; the journal is replayed instead")
        policy = policies.load(stem.with_suffix(".policy"))
        with damaged_on_error(stem):
            return State.restored(policy, saved.state, saved.arrays)

    def _found(self, epoch: int) -> list[Path]:
        """Return the snapshots there are, the latest first, without their suffixes."""
        return sorted(_whole(self._listed() or [], epoch), reverse=True)

    def purge(self, *, epoch: int) -> None:
        """Remove all but the latest, and all from before an erasure: they contain erased users.

        Snapshots of a later epoch stay: the caller does not know of that erasure yet. Drafts of
        this epoch stay too: another process may be writing them.
        """

        def outdated(there: list[Path]) -> list[Path]:
            kept = {stem.name for stem in sorted(_whole(there, epoch), reverse=True)[:KEPT]}
            older = [path for path in there if _epoch(path) < epoch]
            own = [path for path in there if _epoch(path) == epoch and not _is_draft(path)]
            return older + [path for path in own if path.stem not in kept]

        self._clear(outdated)

    def discard_other_epochs(self, epoch: int) -> None:
        """Remove those from before an erasure, and nothing that another process may be writing."""
        self._clear(lambda there: [path for path in there if _epoch(path) != epoch])

    def _clear(self, unwanted: Callable[[list[Path]], list[Path]]) -> None:
        there = self._listed()
        # All are tried, also when one cannot be removed.
        left = [path for path in unwanted(there or []) if not self._remove(path)]
        self.owes = there is None or bool(left)

    def _listed(self) -> list[Path] | None:
        """Return the files of snapshots, whole or drafts; None, with a complaint, if none shows."""
        try:
            found = sorted(self.folder.iterdir())
        except OSError as error:
            self._complain(f"{self.folder} cannot be read ({error.strerror}); it is tried again")
            return None
        return [path for path in found if _FILE.fullmatch(path.name)]

    def discard_ahead(self, last: int) -> None:
        """Remove snapshots that contain lines after `last`, where the journal ends.

        They were made from lines that are lost. Once the journal has grown past them, nothing
        would show that they do not follow from it.
        """
        for path in self._listed() or []:
            if not _is_draft(path) and int(path.stem.partition("-")[2]) > last:
                self._complain(
                    f"snapshot {path.name} is ahead of the journal, which ends at {last}; "
                    "it is removed"
                )
                self._remove(path)

    def _remove(self, path: Path) -> bool:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._complain(f"{path} cannot be removed ({error.strerror}); it is tried again")
            return False
        return True

    def sweep(self) -> None:
        """Remove what a process that has ended left half-written; none may be writing now."""
        for path in self._listed() or []:
            if _is_draft(path):
                self._remove(path)

    def _complain(self, message: str) -> None:
        # What is tried repeatedly is logged once.
        if message not in self.complaints:
            LOG.error("%s", message)
            self.complaints.append(message)


def _epoch(path: Path) -> int:
    return int(path.name.removeprefix(".")[:8])


def _is_draft(path: Path) -> bool:
    return path.name.startswith(".")


def _whole(there: list[Path], epoch: int) -> set[Path]:
    """Return the snapshots of an epoch that were written to their end, without their suffixes."""
    done = (path for path in there if path.suffix == ".state" and not _is_draft(path))
    return {path.with_suffix("") for path in done if _epoch(path) == epoch}


def recover(reader: JournalReader, snapshots: Snapshots, *, upto: int | None = None) -> State:
    """Return the state after the last line (or line `upto`): snapshot, if any, plus journal."""
    end = reader.last() if upto is None else upto
    state = snapshots.latest(epoch=reader.facts().epoch, upto=end) or State(snapshots.spec.make())
    return state.apply_all(reader.after(state.total.seq, upto=end))


def take(folder: Path, spec: PolicySpec) -> None:
    """Write a snapshot of a tenant beside a running service, from its last one and its journal.

    The service is not delayed, and the contents of the new snapshot follow from the journal.
    """
    reader, snapshots = JournalReader(folder / JOURNAL), Snapshots(folder / SNAPSHOTS, spec)
    epoch = reader.facts().epoch
    state = recover(reader, snapshots)
    # Lines that were erased meanwhile may or may not have been read.
    if reader.facts().epoch == epoch:
        snapshots.write(state, epoch=epoch)
        snapshots.purge(epoch=reader.facts().epoch)


def main(arguments: Sequence[str]) -> None:
    """Run `take` as a separate process of low priority."""
    os.nice(10)
    Thread(target=_end_with_parent, daemon=True).start()
    folder, spec = arguments
    take(Path(folder), PolicySpec(**json.loads(spec)))


def _end_with_parent() -> None:
    """End this process when the service ends, which holds the other end of standard input.

    Another service may be about to write to this folder then.
    """
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(ORPHANED)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Snapshots: a `State` on disk, so that a start need not replay all kept lines.

A snapshot is two files, written one after the other, each atomic and with its own digest:
``<epoch>-<line>.policy`` is what `policy.save` writes, ``<epoch>-<line>.state`` the rest. The epoch
counts erasures. A snapshot is used only if both files are whole, were made for the policy that the
settings name, with the same code (`provenance`), from this journal, and if all users erased since
came after its line. Otherwise the one before it is used, and without any the base, if there is one,
and all kept lines.

The state in a snapshot may still show traces of users that were erased in the epochs after `built`:
they were removed as far as the policy can, and the state has to be computed again.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread

from dyclu.errors import FileError
from dyclu.service.disk import archive, bases
from dyclu.service.disk.provenance import difference, made_by
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.state import State
from dyclu.service.spec import PolicySpec
from dyclu.storage import damaged_on_error, make_folder, read

LOG = logging.getLogger("dyclu.service")

JOURNAL, SNAPSHOTS = "journal.db", "snapshots"
"""Names in a tenant's folder."""

ORPHANED = 71
"""Exit status of a snapshot process whose service has ended."""

KEPT = 2
"""Snapshots kept: the latest, and one to fall back on."""

STEP = 1000
"""Lines after which a replay reports its progress."""

_FILE = re.compile(r"\.?[0-9]{8}-[0-9]{20}\.(state|policy)(\.[0-9]+-[0-9]+)?")
"""File names of snapshots; a draft starts with a dot and ends with its process and number."""


@dataclass(frozen=True, slots=True)
class Built:
    """A state, and the epoch for which it is exact."""

    state: State
    epoch: int


@dataclass(frozen=True, slots=True)
class Preview:
    """An earlier state to look at, the epoch for which it is exact, and what made it."""

    state: State
    built: int
    made_by: dict[str, str]


class Snapshots:
    """The snapshots of one tenant; `journal` is the id of its journal.

    Attributes
    ----------
    complaints : list of str
        Problems with the snapshots that were found.
    used : int
        Line of the snapshot that `latest` returned, 0 if there was none.
    owes : bool
        Whether a file that should have been removed may still exist.
    """

    def __init__(self, folder: Path, spec: PolicySpec, journal: str) -> None:
        self.folder, self.spec, self.journal = folder, spec, journal
        self.complaints: list[str] = []
        self.used = 0
        self.owes = False
        # Compute the digest now, while the source files are those that were loaded.
        made_by(spec.name)
        make_folder(folder)

    def write(self, state: State, *, epoch: int, built: int | None = None) -> None:
        """Write a snapshot of a state that is exact for epoch `built`, without anybody erased."""
        stem = self.folder / f"{epoch:08d}-{state.total.seq:020d}"
        state.policy.save(stem.with_suffix(".policy"))
        options = {
            "spec": asdict(self.spec),
            "made_by": made_by(self.spec.name),
            "journal": self.journal,
            "built": epoch if built is None else built,
        }
        bases.write_state(stem.with_suffix(".state"), state, options)

    def latest(
        self, reader: JournalReader, *, upto: int | None = None, exact: bool = False
    ) -> Built | None:
        """Return the latest whole snapshot not beyond line `upto`, or None; complain of others.

        If `exact`, users erased since it was built must not be in it, not even as traces.
        """
        end, facts = reader.last() if upto is None else upto, reader.facts()
        for stem in self._found(reader):
            line = _line(stem)
            if line <= facts.base or line > end or (found := self._tried(stem, reader)) is None:
                continue
            # Then what is replayed after it is without all who were erased since.
            from_before = line <= reader.free_of_erased(found.epoch)
            if from_before or not exact:
                self.used = line
                return Built(found.state, facts.epoch) if from_before else found
        return None

    def of_any_version(self, reader: JournalReader) -> Preview | None:
        """Return the latest snapshot of this policy, whatever code made it, if it can be read."""
        for stem in self._found(reader):
            with suppress(FileError, OSError), damaged_on_error(stem):
                saved = read(stem.with_suffix(".state"))
                told = saved.options
                if (told["spec"], told["journal"]) == (asdict(self.spec), self.journal):
                    policy = self.spec.load(stem.with_suffix(".policy"))
                    state = State.restored(policy, saved.state, saved.arrays)
                    return Preview(state, int(told["built"]), dict(told["made_by"]))
        return None

    def _tried(self, stem: Path, reader: JournalReader) -> Built | None:
        try:
            return self._read(stem, reader)
        except (FileError, OSError) as error:
            self._complain(f"snapshot {stem.name} is not used: {error}")
            return None

    def _read(self, stem: Path, reader: JournalReader) -> Built | None:
        saved = read(stem.with_suffix(".state"))
        if saved.kind != bases.KIND or saved.options["spec"] != asdict(self.spec):
            LOG.warning("snapshot %s was made by another policy; it is not used", stem.name)
            return None
        if differs := difference(saved.options.get("made_by"), self.spec.name):
            raise FileError(f"{differs}; the journal is replayed instead")
        if saved.options.get("journal") != self.journal:
            raise self._foreign(stem, "its journal has another id")
        policy = self.spec.load(stem.with_suffix(".policy"))
        with damaged_on_error(stem):
            state = State.restored(policy, saved.state, saved.arrays)
        if reader.time_of(state.total.seq) != state.total.at:
            raise self._foreign(stem, f"line {state.total.seq} of its journal was another one")
        return Built(state, int(saved.options["built"]))

    def _foreign(self, stem: Path, why: str) -> FileError:
        """Remove a snapshot of another journal, and return the complaint."""
        for suffix in (".state", ".policy"):
            self._remove(stem.with_suffix(suffix))
        return FileError(f"it was made from another journal ({why}); it is removed")

    def _found(self, reader: JournalReader) -> list[Path]:
        """Return the snapshots without erased users, the latest first, without their suffixes."""
        return sorted(_whole(self._listed() or [], reader), key=_line_and_epoch, reverse=True)

    def purge(self, reader: JournalReader) -> None:
        """Remove all but the latest, and all that contain erased users.

        Drafts without erased users stay: another process may be writing them.
        """

        def outdated(there: list[Path]) -> list[Path]:
            latest = sorted(_whole(there, reader), key=_line_and_epoch, reverse=True)[:KEPT]
            kept = {stem.name for stem in latest}
            done = [path for path in there if not _is_draft(path) and path.stem not in kept]
            return done + [path for path in there if _is_draft(path) and not _clean(path, reader)]

        self._clear(outdated)

    def discard(self, reader: JournalReader) -> None:
        """Remove those that contain erased users."""
        self._clear(lambda there: [path for path in there if not _clean(path, reader)])

    def _clear(self, unwanted: Callable[[list[Path]], list[Path]]) -> None:
        # Also if the journal, which says what is unwanted, cannot be read.
        self.owes = True
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
            if not _is_draft(path) and _line(path) > last:
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


def _line(path: Path) -> int:
    return int(path.name.removeprefix(".")[9:29])


def _line_and_epoch(path: Path) -> tuple[int, int]:
    return _line(path), _epoch(path)


def _is_draft(path: Path) -> bool:
    return path.name.startswith(".")


def _clean(path: Path, reader: JournalReader) -> bool:
    """Return whether nobody in this snapshot was erased since it was made."""
    return _line(path) <= reader.free_of_erased(_epoch(path))


def _whole(there: list[Path], reader: JournalReader) -> set[Path]:
    """Return the snapshots written to their end, without erased users and without suffixes."""
    done = (path for path in there if path.suffix == ".state" and not _is_draft(path))
    return {path.with_suffix("") for path in done if _clean(path, reader)}


def beginning(reader: JournalReader, snapshots: Snapshots, *, exact: bool = False) -> Built:
    """Return the state from which to go on: the latest snapshot, the base, or an empty state."""
    tenant, epoch = snapshots.folder.parent, reader.facts().epoch
    return snapshots.latest(reader, exact=exact) or Built(
        bases.begin(reader, tenant, snapshots.spec), epoch
    )


def preview(reader: JournalReader, snapshots: Snapshots) -> Preview | None:
    """Return a state to look at while a replay is under way: a snapshot, or the base."""
    if (found := snapshots.of_any_version(reader)) is not None:
        return found
    base = bases.read_base(reader, snapshots.folder.parent, snapshots.spec)
    if base is None or not base.same_policy:
        return None
    return Preview(base.state, reader.facts().epoch, {"base": str(base.state.total.seq)})


def recover(
    reader: JournalReader,
    snapshots: Snapshots,
    *,
    progress: Callable[[Built], None] = lambda _: None,
) -> Built:
    """Return the state after the last line: snapshot or base, if any, plus journal."""
    found, end = beginning(reader, snapshots), reader.last()
    progress(found)
    for count, line in enumerate(reader.after(found.state.total.seq, upto=end), 1):
        found.state.apply(line)
        if count % STEP == 0:
            progress(found)
    progress(found)
    return found


def take(folder: Path, spec: PolicySpec) -> None:
    """Write a snapshot of a tenant beside a running service, from its last one and its journal.

    The service is not delayed, and the contents of the new snapshot follow from the journal.
    """
    reader = JournalReader(folder / JOURNAL)
    facts = reader.facts()
    if reader.being_erased():
        return  # the base may still contain a user whose lines are gone
    snapshots = Snapshots(folder / SNAPSHOTS, spec, facts.id)
    made = recover(reader, snapshots)
    # Lines that were erased meanwhile may or may not have been read.
    if reader.facts().epoch == facts.epoch:
        snapshots.write(made.state, epoch=facts.epoch, built=made.epoch)
        snapshots.purge(reader)


def make_base(folder: Path, spec: PolicySpec, upto: int, into: Path, *, archived: bool) -> None:
    """Write the files of a base for lines up to `upto` beside a running service, verified.

    If `archived`, these lines are written to the archive too.
    """
    reader = JournalReader(folder / JOURNAL)
    bases.make(reader, folder, spec, upto=upto, into=into)
    if archived:
        archive.write(reader, folder, after=reader.facts().base, upto=upto)


def main(arguments: Sequence[str]) -> None:
    """Run `take`, or `make_base`, as a separate process of low priority."""
    os.nice(10)
    Thread(target=_end_with_parent, daemon=True).start()
    folder, told, *base = arguments
    spec = PolicySpec(**json.loads(told))
    if base:
        upto, into, archived = base
        make_base(Path(folder), spec, int(upto), Path(into), archived=archived == "archive")
    else:
        take(Path(folder), spec)


def _end_with_parent() -> None:
    """End this process when the service ends, which holds the other end of standard input.

    Another service may be about to write to this folder then.
    """
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(ORPHANED)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Bases: a state that stands for the lines before it, stored in the journal's own database.

A base is the two files of a snapshot, cut into parts. `store` and `forget` yield the writes that
put another one in force, to be carried out one after the other by the only writer. Whatever is
interrupted leaves parts that nothing refers to.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from dyclu.errors import DamagedFile, FileError
from dyclu.service.disk.history import History
from dyclu.service.disk.journal import Journal
from dyclu.service.disk.provenance import made_by
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.state import State
from dyclu.service.spec import PolicySpec
from dyclu.storage import Saved, damaged_on_error, make_folder, read, write

LOG = logging.getLogger("dyclu.service")

PART = 1 << 20
"""Bytes of a part: so many are written in one commit, between those of requests."""

KIND = "service-state"
POLICY, STATE = FILES = ("base.policy", "base.state")
DRAFTS = "base-drafts"
"""Folder of files on their way to or from the database; removed at a start."""

Write = Callable[[], object]
Gone = Iterable[tuple[str, list[int]]]
"""Users who were erased, with the numbers of their decisions."""


@contextmanager
def drafts(tenant: Path) -> Iterator[Path]:
    """Yield an empty folder for the two files of a base; remove it afterwards."""
    folder = tenant / DRAFTS / f"{os.getpid()}-{os.urandom(4).hex()}"
    make_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(tenant: Path) -> None:
    """Remove what a process that has ended left in the folder of drafts."""
    shutil.rmtree(tenant / DRAFTS, ignore_errors=True)


def write_files(folder: Path, state: State, spec: PolicySpec) -> None:
    """Write a state as the two files of a base."""
    state.policy.save(folder / POLICY)
    write_state(folder / STATE, state, {"spec": asdict(spec), "made_by": made_by(spec.name)})


def write_state(path: Path, state: State, options: dict[str, object]) -> None:
    """Write everything of a state but its policy."""
    told, arrays = state.dump()
    write(path, Saved(KIND, options, told, arrays))


@dataclass(frozen=True, slots=True)
class Read:
    """A state from a base; its policy is empty if the base is not of the policy that serves."""

    state: State
    same_policy: bool


def read_files(folder: Path, spec: PolicySpec) -> Read:
    """Return the state that `write_files` wrote; with an empty policy if `spec` is another one."""
    saved = read(folder / STATE)
    same = saved.options["spec"] == asdict(spec)
    policy = spec.load(folder / POLICY) if same else spec.make()
    with damaged_on_error(folder):
        state = State.restored(policy, saved.state, saved.arrays)
    if not same:
        for counters in state.users.values():
            counters.segment = None
        for known in state.absorbed.shards.values():
            # What others have published is news for another policy.
            known.ages.clear()
    return Read(state, same)


def read_base(reader: JournalReader, tenant: Path, spec: PolicySpec) -> Read | None:
    """Return the state that the base in force stands for; None if there is no base."""
    while (facts := reader.facts()).base:
        try:
            found = _read_parts(reader, tenant, spec, facts.generation)
        except FileError as error:
            if reader.facts().generation != facts.generation:
                continue  # another base was put in force meanwhile
            raise DamagedFile(
                f"the base in {reader.path} stands for the lines up to {facts.base}, and it cannot "
                f"be read ({error}); restore the journal from a backup"
            ) from None
        found.state.total.seq = facts.base
        return found
    return None


def _read_parts(reader: JournalReader, tenant: Path, spec: PolicySpec, generation: int) -> Read:
    with drafts(tenant) as folder:
        for file in FILES:
            with (folder / file).open("wb") as out:
                out.writelines(reader.parts(generation, file))
        return read_files(folder, spec)


def begin(reader: JournalReader, tenant: Path, spec: PolicySpec) -> State:
    """Return the state before the first kept line: the base, or an empty state.

    If the base holds another policy, `spec` learns all archived lines instead, if none is missing.
    """
    found, history = read_base(reader, tenant, spec), History(reader)
    if found is None:
        return State(spec.make())
    if found.same_policy:
        return found.state
    if history.start:
        LOG.warning("the base is of another policy; %s learns from the kept lines", spec.name)
        return found.state
    LOG.warning("the base is of another policy; %s learns from archive and journal", spec.name)
    state = State(spec.make()).apply_all(history.archived())
    state.total.seq = found.state.total.seq
    return state


def make(reader: JournalReader, tenant: Path, spec: PolicySpec, *, upto: int, into: Path) -> None:
    """Compute the base for lines up to `upto` from the base in force, and verify its files.

    Snapshots are not used: an error in one of them would become permanent.
    """
    state = begin(reader, tenant, spec)
    state.apply_all(reader.after(reader.facts().base, upto=upto))
    write_files(into, state, spec)
    with drafts(tenant) as again:
        write_files(again, read_files(into, spec).state, spec)
        for file in FILES:
            if digest(_pieces(into / file)) != digest(_pieces(again / file)):
                raise DamagedFile(f"{into / file} does not give back the state it was made from")


def forget(folder: Path, spec: PolicySpec, gone: Gone) -> None:
    """Remove users from the two files of a base, as far as the policy can."""
    state = read_files(folder, spec).state
    for user, decisions in gone:
        state.forget(user, decisions)
    write_files(folder, state, spec)


def without(
    journal: Journal, reader: JournalReader, tenant: Path, spec: PolicySpec, gone: Gone
) -> Iterator[Write]:
    """Yield the writes that remove users from the base in force."""
    facts = reader.facts()
    state = begin(reader, tenant, spec) if facts.base else None
    people = [(user, decisions) for user, decisions in gone if _holds(state, user, decisions)]
    if state is None or not people:
        return
    for user, decisions in people:
        state.forget(user, decisions)
    with drafts(tenant) as folder:
        write_files(folder, state, spec)
        yield from store(journal, reader, folder, line=facts.base)


def _holds(state: State | None, user: str, decisions: Iterable[int]) -> bool:
    return state is not None and (
        state.knows(user) or any(seq in state.pending for seq in decisions)
    )


def store(
    journal: Journal,
    reader: JournalReader,
    folder: Path,
    *,
    line: int,
    epoch: int | None = None,
    archived: tuple[int, int] | None = None,
) -> Iterator[Write]:
    """Yield the writes that store the two files of a base and put it in force.

    If a user was erased since `epoch`, it is not put in force, and its parts are removed.
    """
    # An attempt that failed may have left parts of the same generation.
    yield from _dropping(journal)
    generation = reader.facts().generation + 1
    for file in FILES:
        for number, piece in enumerate(_pieces(folder / file)):
            yield partial(journal.put_part, generation, file, number, piece)
    for file in FILES:
        if digest(reader.parts(generation, file)) != digest(_pieces(folder / file)):
            raise DamagedFile(f"{reader.path} does not give back the base that was stored")
    yield partial(journal.put_in_force, generation, line, epoch=epoch, archived=archived)
    yield from _dropping(journal)


def _dropping(journal: Journal) -> Iterator[Write]:
    """Yield the writes that delete parts of all bases that are not in force."""
    left = [True]

    def drop() -> None:
        left[0] = journal.drop_parts()

    while left[0]:
        yield drop


def digest(pieces: Iterable[bytes]) -> str:
    """Return the digest of a file that is given in pieces."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PART):
            yield piece

"""`dyclu.kernels.compiling`: stored machine code is reused exactly as long as no kernel changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dyclu

pytest.importorskip("numba")

CALL = """
import sys; sys.path.insert(0, sys.argv[1])
import numpy as np
from dyclu.kernels import ridge
print(ridge.best_arm(np.array([0.0, 1.0, 1.5]), np.zeros(3), 1e-9)[0], end=" ")
print(sum(ridge.best_arm.stats.cache_hits.values()))
"""
"""`best_arm` of one file calls `first_best`; here that is moved to another file."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package in which `first_best` lies in the file `linalg`."""
    source = Path(dyclu.__file__).parent
    copy = shutil.copytree(source, tmp_path / "dyclu", ignore=shutil.ignore_patterns("__pycache__"))
    ridge, linalg = copy / "kernels/ridge.py", copy / "kernels/linalg.py"
    text = ridge.read_text()
    start = text.index("@compiled\ndef first_best")
    end = text.index("@compiled\ndef best_arm")
    linalg.write_text(linalg.read_text() + "\n\n" + text[start:end].rstrip() + "\n")
    text = text[:start] + text[end:]
    ridge.write_text(text.replace("linalg import ", "linalg import first_best, ", 1))
    return copy


def call(package: Path) -> tuple[int, int]:
    """Return the arm that `best_arm` chooses in a new process, and how often code was reused."""
    words = [sys.executable, "-c", CALL, str(package.parent)]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    arm, hits = map(int, printed.split())
    return arm, hits


def test_machine_code_is_reused_while_no_kernel_changes(package: Path) -> None:
    assert call(package) == (2, 0)
    assert call(package) == (2, 1)


def test_a_change_of_a_callee_in_another_file_recompiles_its_callers(package: Path) -> None:
    assert call(package) == (2, 0)
    linalg = package / "kernels/linalg.py"
    text = linalg.read_text()
    assert "scores[i] >= best - tie" in text
    linalg.write_text(text.replace("scores[i] >= best - tie", "scores[i] >= best - tie - 0.6"))
    assert call(package) == (1, 0)


UNCOMPILED = """
import sys, warnings
import numpy as np
if {without}:
    sys.modules["numba"] = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import dyclu
    rng = np.random.default_rng(7)
    policy, tastes = dyclu.DyClu(9), rng.normal(size=(2, 9))
    for step in range(320):
        user, arms = step % 4, rng.normal(size=(4, 9))
        arm = policy.decide(user, arms).arm
        taste = tastes[(user + (step > 160)) % 2]
        policy.learn(user, arms[arm], float(arms[arm] @ taste + 0.1 * rng.normal()))
print([str(w.message)[:5] for w in caught], policy.changes, policy._table.total(np.arange(4)))
for column in (policy._table.inverse, policy._table.theta, policy._table.inverse_bound):
    print(*(v.hex() for v in column[:len(policy.segments)].ravel().tolist()))
"""


def _played(*, without: bool) -> str:
    script = UNCOMPILED.format(without=without)
    words = [sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_without_numba_the_numbers_are_the_same_and_a_warning_is_given() -> None:
    compiled, plain = _played(without=False), _played(without=True)
    assert compiled.startswith("[]")
    assert "Change" in compiled
    assert plain.startswith("['numba']")
    assert compiled.removeprefix("[]") == plain.removeprefix("['numba']")


FORMS = """
import numpy as np
from dyclu import Atlas, DyClu, LinUCB, kernels
rng = np.random.default_rng(8)
for policy, binary in ((DyClu(4), 0), (LinUCB(4), 0), (Atlas(4), 0), (Atlas(4), 1)):
    for step in range(200):
        arms = rng.normal(size=(5, 4))
        forms = arms, np.asfortranarray(arms), arms[::-1], arms.astype(np.float32), arms.copy()
        for form in forms:
            form.flags.writeable = False
        arm = policy.decide(step % 3, forms[step % 5]).arm
        reward = float(forms[step % 5][arm].sum() + 0.3 * rng.normal())
        policy.learn(step % 3, forms[step % 5][arm], float(reward > 0) if binary else reward)
        policy.decide("an unknown user", arms)
    policy.decide_many([0, 1], np.asfortranarray(rng.normal(size=(2, 5, 4))))
    policy.learn_many([0, 1], np.asfortranarray(rng.normal(size=(2, 4))), [0.0, 1.0])
for file in kernels.__all__:
    for name, kernel in vars(getattr(kernels, file)).items():
        print(name, len(getattr(kernel, "signatures", ())))
"""


def test_each_kernel_is_compiled_once_for_all_forms_of_input() -> None:
    """For another memory order or a read-only array, numba would compile again for seconds."""
    words = [sys.executable, "-c", FORMS]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    types = {name: int(count) for name, count in map(str.split, printed.splitlines())}
    used = {"compare", "ridge_scores", "add_sums", "ucb_many", "observe_many", "learn_located"}
    assert {types[name] for name in used} == {1}
    assert {name: count for name, count in types.items() if count > 1} == {}

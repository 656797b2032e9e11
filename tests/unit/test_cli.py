"""`dyclu.cli`: output, files and exit statuses of the commands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from typer.testing import CliRunner

import dyclu
from dyclu.cli import app, main
from dyclu.policies import DyClu
from dyclu.sim.studies import demo as demo_study

SMALL = ["--users=4", "--rounds=30", "--dim=3", "--parameters=2"]
NAMES = ["uniform", "LinUCB", "DyClu", "Atlas"]
ESCAPE = "\x1b"


def demo(*options: str, columns: int = 80) -> Any:
    return CliRunner().invoke(app, ["demo", *SMALL, *options], env={"COLUMNS": str(columns)})


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from dyclu.cli import main; main()", *words]


def not_to_be_called(*_: object, **__: object) -> NoReturn:
    raise AssertionError("played")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_a_demo_prints_a_table_and_writes_picture_and_page(out: Path) -> None:
    result = demo(f"--out={out}")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.startswith("4 users share 2 tastes; 30 rounds each, ")
    words = [line.split()[:1] for line in result.stdout.splitlines()]
    assert all([name] in words for name in NAMES)
    assert result.stdout.endswith(f"written: {out / 'demo.png'}\nwritten: {out / 'demo.html'}\n")
    assert sorted(path.name for path in out.iterdir()) == ["demo.html", "demo.png"]
    page = (out / "demo.html").read_text(encoding="utf-8")
    assert all(name in page for name in NAMES)
    assert dyclu.__version__ in page
    assert all(f"<h2>{part}" in page for part in ("The race", "The map", "Clicks", "What to do"))


@pytest.mark.parametrize("columns", [80, 50])
def test_what_is_printed_fits_the_terminal(columns: int) -> None:
    result = demo("--no-picture", columns=columns)
    _, *lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert all(word in result.stdout for word in [*NAMES, "precision", "regret"])
    assert "…" not in result.stdout


def test_output_that_is_no_terminal_has_no_escape_codes() -> None:
    result = subprocess.run(
        command("demo", *SMALL, "--no-picture"), capture_output=True, text=True, check=True
    )
    assert ESCAPE not in result.stdout
    assert result.stderr == ""


def test_quiet_prints_nothing_and_writes_the_files(out: Path) -> None:
    result = demo("--quiet", f"--out={out}")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert len(list(out.iterdir())) == 2


def test_no_picture_writes_nothing(out: Path) -> None:
    assert demo("--no-picture", f"--out={out}").exit_code == 0
    assert not out.exists()


def test_json_is_one_document_and_nothing_else(out: Path) -> None:
    result = demo("--json", "--seed=7", f"--out={out}")
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert document["version"] == dyclu.__version__
    assert document["seed"] == 7
    assert document["tell_noise"] is False
    assert document["setting"]["users"] == 4
    assert document["setting"]["shortest"] == 6
    assert document["setting"]["longest"] == 15
    assert document["files"] == [str(out / "demo.png"), str(out / "demo.html")]
    assert list(document["policies"]) == NAMES
    assert document["policies"]["uniform"]["precision"] is None
    assert document["policies"]["uniform"]["warnings"] == []
    assert 0 < document["policies"]["DyClu"]["precision"] <= 1


def test_a_demo_prints_the_warnings_of_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DyClu, "warnings", ("Seen this, expected that; do so.",))
    result = demo("--no-picture")
    assert "DyClu warns: Seen this, expected that; do so." in result.stdout.splitlines()


def test_quiet_does_not_silence_json() -> None:
    assert json.loads(demo("--json", "--quiet", "--no-picture").stdout)["files"] == []


def regrets(*words: str) -> dict[str, float]:
    document = json.loads(CliRunner().invoke(app, [*words, "--json", "--no-picture"]).stdout)
    return {name: summary["regret"] for name, summary in document["policies"].items()}


def test_the_command_in_the_json_gives_the_same_run() -> None:
    options = ["demo", *SMALL, "--noise=0.3", "--seed=3", "--tell-noise"]
    document = json.loads(CliRunner().invoke(app, [*options, "--json", "--no-picture"]).stdout)
    program, *words = shlex.split(document["command"])
    assert program == "dyclu"
    assert regrets(*words) == regrets(*options)


def test_tell_noise_changes_the_policies_that_use_the_noise() -> None:
    with_noise, without = regrets("demo", *SMALL, "--tell-noise"), regrets("demo", *SMALL)
    assert with_noise["uniform"] == without["uniform"]
    assert with_noise["LinUCB"] != without["LinUCB"]
    assert with_noise["DyClu"] != without["DyClu"]


@pytest.mark.usefixtures("without_matplotlib")
def test_without_matplotlib_the_demo_plays_and_then_says_how_to_get_the_picture(
    out: Path,
) -> None:
    result = demo(f"--out={out}")
    assert result.exit_code == 0
    assert "DyClu" in result.stdout
    assert "written" not in result.stdout
    assert "pip install 'dyclu[plots]'" in result.stderr
    assert result.stderr.count("\n") == 1
    # Interleaved as a terminal shows it: the table comes first.
    assert result.output.index("recall") < result.output.index("pip install")


@pytest.mark.usefixtures("without_matplotlib")
def test_without_matplotlib_json_is_still_one_document(out: Path) -> None:
    assert json.loads(demo("--json", f"--out={out}").stdout)["files"] == []


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--users=0", "users is 0"),
        ("--rounds=-3", "rounds is -3"),
        ("--noise=nan", "noise is nan"),
        ("--seed=-1", "seed is -1"),
        ("--parameters=9999", "separation is 0.9"),
        ("--users=1000000000000", "not enough memory"),
    ],
)
def test_a_refusal_is_one_line_and_status_2(option: str, message: str) -> None:
    result = demo("--no-picture", option)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"dyclu: {message}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["demo", "--users=many"], ["demo", "--nope"], ["nope"]])
def test_unknown_options_and_commands_have_status_2(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error:" in result.stderr


def test_a_file_at_the_path_of_the_folder_is_found_before_playing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_study, "play", not_to_be_called)
    (tmp_path / "file").touch()
    result = demo(f"--out={tmp_path / 'file'}")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"dyclu: cannot write {tmp_path / 'file'} (")


def test_ctrl_c_is_status_130_and_a_short_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_study, "play", interrupted)
    result = demo("--no-picture")
    assert result.exit_code == 130
    assert result.stderr == "dyclu: interrupted\n"


@pytest.mark.parametrize("option", ["--no-picture", "--json"])
def test_a_closed_stdout_gives_no_message(option: str, out: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = command("demo", *SMALL, option, f"--out={out}")
    with os.fdopen(writer) as closed:
        result = subprocess.run(words, stdout=closed, stderr=subprocess.PIPE, check=False)
    assert result.returncode == 1
    assert result.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_a_refusal() -> None:
    with Path("/dev/full").open("w") as full:
        words = command("demo", *SMALL, "--json", "--no-picture")
        result = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(b"dyclu: ")
    assert b"Traceback" not in result.stderr


def _read_until(terminal: int, end: bytes) -> str:
    seen = b""
    while not seen.endswith(end):
        seen += os.read(terminal, 100_000)
    return seen.decode()


@pytest.mark.parametrize(("options", "shown"), [((), True), (("--quiet",), False)])
def test_progress_is_for_terminals_and_leaves_stdout_alone(
    options: tuple[str, ...], shown: bool
) -> None:
    terminal, shell = os.openpty()
    words = command("demo", *SMALL, "--json", "--no-picture", *options)
    with ThreadPoolExecutor() as pool:
        # Read at the same time: a terminal buffers a few kilobytes, then the writer blocks.
        reading = pool.submit(_read_until, terminal, b"end")
        result = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            stderr=shell,
            env={**os.environ, "TERM": "xterm"},
            check=True,
        )
        os.write(shell, b"end")
        seen = reading.result()
    os.close(terminal)
    os.close(shell)
    json.loads(result.stdout)
    assert ("DyClu" in seen and "100%" in seen) is shown
    assert shown or seen == "end"


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"dyclu {dyclu.__version__}\n")


def test_every_command_and_option_has_help() -> None:
    group: Any = typer.main.get_command(app)
    assert "demo" in group.commands
    for name, found in group.commands.items():
        assert found.help, name
        assert all(option.help for option in found.params), name
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


def test_help_is_printed_as_written() -> None:
    result = CliRunner().invoke(app, ["demo", "--help"], env={"COLUMNS": "80"})
    assert "pip install 'dyclu[plots]'" in " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_help_imports_neither_matplotlib_nor_dyclu_sim() -> None:
    code = (
        "import sys, dyclu.cli\n"
        "try: dyclu.cli.main()\n"
        "finally: print(*sorted({'matplotlib', 'dyclu.sim'} & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
    )
    assert "demo" in result.stdout
    assert result.stderr == "\n"


def test_main_is_the_entry_point(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["dyclu", "demo", "--users=0"])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2
    assert capsys.readouterr().err.startswith("dyclu: users is 0")

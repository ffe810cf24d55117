"""forebay.toml: found from below, checked wholly, and behind the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from fresh import forebay

from forebay import project
from forebay.errors import (
    DeniedOptionError,
    ForebayError,
    OptionValueError,
    StatementError,
    UnknownObjectError,
    UnknownOptionError,
)

GOOD = """
home = "h"
brokers = "one:9092"
[profiles.production]
brokers = "${PRODUCTION}:9092"
"""


def written(folder: Path, text: str) -> Path:
    (folder / project.FILE).write_text(text)
    below = folder / "a" / "b"
    below.mkdir(parents=True, exist_ok=True)
    return below


def offered(start: Path, profile: str | None = None, **environ: str) -> dict[str, str]:
    project.offer(profile, environ=environ, start=start)
    return environ


def test_the_file_is_found_from_a_folder_below_it_and_its_home_is_relative_to_the_file(
    tmp_path: Path,
) -> None:
    below = written(tmp_path, GOOD)
    assert offered(below) == {"FOREBAY_HOME": str(tmp_path / "h"), "KAFKA_BOOTSTRAP_SERVERS": "one:9092"}


def test_the_file_of_client_settings_is_relative_to_the_file(tmp_path: Path) -> None:
    below = written(tmp_path, 'kafka_config = "client.properties"')
    assert offered(below) == {"FOREBAY_KAFKA_CONFIG": str(tmp_path / "client.properties")}


def test_the_nearest_file_is_the_one(tmp_path: Path) -> None:
    below = written(tmp_path, GOOD)
    (below / project.FILE).write_text('brokers = "two:9092"')
    assert offered(below) == {"KAFKA_BOOTSTRAP_SERVERS": "two:9092"}


def test_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    below = written(tmp_path, GOOD)
    assert offered(below, KAFKA_BOOTSTRAP_SERVERS="mine:1", FOREBAY_HOME="/x") == {
        "KAFKA_BOOTSTRAP_SERVERS": "mine:1",
        "FOREBAY_HOME": "/x",
    }


def test_a_profile_comes_before_what_stands_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRODUCTION", "big")
    found = offered(written(tmp_path, GOOD), "production")
    assert found == {"FOREBAY_HOME": str(tmp_path / "h"), "KAFKA_BOOTSTRAP_SERVERS": "big:9092"}


def test_dev_is_the_running_stack_and_localhost_where_none_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_STATE", str(tmp_path / "state"))
    found = offered(written(tmp_path, 'brokers = "dev"\nregistry = "dev"'))
    assert found == {"KAFKA_BOOTSTRAP_SERVERS": "localhost:9092"}


@pytest.mark.parametrize(
    ("text", "error", "place", "remedy"),
    [
        ('home = "h"\nbroker = "x:1"', UnknownOptionError, (2, 1), "did you mean 'brokers'?"),
        (
            '[profiles.p]\n  "registy" = "http://x"',
            UnknownOptionError,
            (2, 3),
            "did you mean 'registry'?",
        ),
        ('\n[profile.p]\nhome = "h"', UnknownOptionError, (2, 2), "did you mean 'profiles'?"),
        ("home = 3", OptionValueError, (1, 1), 'home = ".forebay"'),
        ('brokers = ["a:1"]', OptionValueError, (1, 1), 'brokers = "localhost:9092"'),
        ('home = ""', OptionValueError, (1, 1), 'home = ".forebay"'),
        ("profiles = 3", OptionValueError, (1, 1), "[profiles.production]"),
        ("home = x", OptionValueError, (1, 8), 'brokers = "localhost:9092"'),
        ('profiles.p.brokers = "${NOT_SET_ANYWHERE}"', OptionValueError, (1, 1), "export NOT_SET_ANYWHERE"),
    ],
)
def test_what_is_wrong_in_it_is_said_with_its_place_and_a_remedy(
    text: str, error: type[StatementError], place: tuple[int, int], remedy: str, tmp_path: Path
) -> None:
    below = written(tmp_path, text)
    with pytest.raises(error) as caught:
        offered(below, "p" if "profiles.p." in text else None)
    position = caught.value.position
    assert position is not None
    assert (position.line, position.column) == place
    assert remedy in caught.value.remedy
    assert str(tmp_path / project.FILE) in str(caught.value)
    assert "^" in str(caught.value)


def test_a_password_in_an_address_is_refused_and_not_shown(tmp_path: Path) -> None:
    below = written(tmp_path, 'registry = "https://me:hunter2@registry:8081"')
    with pytest.raises(DeniedOptionError) as caught:
        offered(below)
    assert "hunter2" not in str(caught.value)
    assert "${NAME}" in caught.value.remedy


def test_a_profile_that_is_not_there_gets_a_suggestion_and_one_without_a_file_says_so(tmp_path: Path) -> None:
    below = written(tmp_path, GOOD)
    with pytest.raises(UnknownObjectError, match="did you mean 'production'"):
        offered(below, "prod")
    (tmp_path / project.FILE).unlink()
    with pytest.raises(ForebayError, match="in this folder or above it"):
        offered(below, "production")


@pytest.mark.parametrize("command", ["show sources", "topic ls", "consume t", "schema ls", "dlq ls", "lag"])
def test_every_command_reads_the_file_and_help_does_not(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written(tmp_path, 'broker = "x"'))
    done = forebay(tmp_path, *command.split())
    assert (done.code, done.heavy) == (2, [])
    assert "did you mean 'brokers'?" in done.words
    assert forebay(tmp_path, *command.split(), "--help").code == 0


def test_a_flag_comes_before_the_environment_and_that_before_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written(tmp_path, 'brokers = "localhost:1"\n[profiles.p]\nbrokers = "localhost:2"'))
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)

    def asked(*arguments: str, **environment: str) -> str:
        done = forebay(tmp_path, "topic", "ls", *arguments, **environment)
        assert done.code == 3
        return done.words

    assert "Kafka at localhost:1 " in asked()
    assert "Kafka at localhost:2 " in asked(FOREBAY_PROFILE="p")
    assert "Kafka at localhost:2 " in asked("--profile", "p")
    assert "Kafka at localhost:3 " in asked("--profile", "p", KAFKA_BOOTSTRAP_SERVERS="localhost:3")
    assert "Kafka at localhost:4 " in asked("-b", "localhost:4", KAFKA_BOOTSTRAP_SERVERS="localhost:3")

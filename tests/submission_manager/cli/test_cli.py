"""`submission-manager` as a process: what it prints, how it ends, what a signal does."""

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fencehold.model.errors import ConfigurationError
from submission_manager.settings import SETTINGS, settings, unknown_variables
from submission_manager.stores.opening import LEASE_TABLE
from tests.submission_manager.http.parts import REGISTRY

COMMAND = [sys.executable, "-m", "submission_manager.cli"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SM_")}
END_S = 30


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=END_S, env=ENVIRONMENT | variables, check=False
    )


@pytest.fixture
def registry(tmp_path: Path) -> str:
    path = tmp_path / "registry.json"
    path.write_text(REGISTRY)
    return str(path)


@contextmanager
def started(*arguments: str, files_max: int = 1024, **variables: str) -> Iterator[subprocess.Popen[str]]:
    limited = ["sh", "-c", f'ulimit -n {files_max}; exec "$@"', "sh", *COMMAND]
    process = subprocess.Popen(
        [*limited, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | variables
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines_until(stream: Any, word: str) -> list[str]:
    lines: list[str] = []
    for line in stream:
        lines.append(str(line))
        if word in line:
            return lines
    raise AssertionError(f"it ended without {word!r}")


def line_with(stream: Any, word: str) -> str:
    return lines_until(stream, word)[-1]


def test_check_says_ok_or_every_problem(registry, tmp_path):
    good = run("check", "--registry", registry)
    assert (good.returncode, good.stdout) == (0, "ok: 2 targets\n")
    bad = tmp_path / "bad.json"
    bad.write_text('{"targets": [{"submissionTarget": "a"}], "more": 1}')
    answer = run("check", SM_REGISTRY=str(bad))
    assert answer.returncode == 78
    assert [line.partition(":")[0] for line in answer.stdout.splitlines()] == [
        "more", "targets[0].gatewayType", "targets[0].gatewayUrl", "targets[0].policy", "targets[0].terminalOutcomes",
    ]  # fmt: skip


def test_check_names_a_file_that_cannot_be_read_and_its_help_has_an_example(tmp_path):
    answer = run("check", "--registry", str(tmp_path / "none.json"))
    assert (answer.returncode, answer.stdout.startswith(f"{tmp_path / 'none.json'}: it cannot be read")) == (78, True)
    assert "submission-manager check --registry registry.json" in run("check", "--help").stdout


def test_help_names_both_values_of_durable():
    words = " ".join(run("serve", "--help").stdout.split())
    assert "(replicated)" in words
    assert "(replicated_and_applied)" in words


def test_variables_that_webhooks_need_and_that_are_not_set_are_told(registry, sqlite_url):
    text = Path(registry).read_text()
    hook = '"webhook": {"url": "http://h.test", "headersEnv": {"X-Key": "HOOK_KEY"}, "secretEnv": "HOOK_SECRET"}'
    Path(registry).write_text(text.replace('"policy": "one_shot",', f'"policy": "one_shot", {hook},'))
    answer = run("check", "--registry", registry, HOOK_KEY="k")
    assert (answer.returncode, answer.stdout) == (0, "ok: 2 targets\n")
    assert "HOOK_SECRET" in answer.stderr
    assert "HOOK_KEY" not in answer.stderr
    assert run("check", "--registry", registry, HOOK_KEY="k", HOOK_SECRET="s").stderr == ""
    with started("serve", "--registry", registry, "--port", "0", SM_DATABASE=sqlite_url, HOOK_KEY="k") as process:
        assert "HOOK_SECRET" in line_with(process.stderr, "variables_missing")


def test_a_retry_delay_that_leaves_no_time_for_a_second_attempt_is_warned_of_by_check_and_by_serve(
    registry, sqlite_url
):
    assert run("check", "--registry", registry).stderr == ""
    answer = run("check", "--registry", registry, "--retry-delay", "30s")
    assert (answer.returncode, answer.stdout) == (0, "ok: 2 targets\n")
    assert "warning: sms.realtime: maxAcceptanceSeconds is not above --retry-delay (30s)" in answer.stderr
    assert "push.realtime" not in answer.stderr
    assert "sms.realtime" in run("check", "--registry", registry, SM_RETRY_DELAY="1m").stderr
    arguments = ("serve", "--registry", registry, "--port", "0", "--retry-delay", "30s")
    with started(*arguments, SM_DATABASE=sqlite_url) as process:
        line = line_with(process.stderr, "retry_delay_long")
    assert "WARNING" in line
    assert "targets=sms.realtime" in line


def test_serve_refuses_bad_settings_all_at_once_before_anything_else(registry, tmp_path):
    answer = run("serve", "--port", "x", "--lease-duration", "10s", "--registry", registry, SM_ON_SQL_ERROR="ignore")
    assert answer.returncode == 78
    assert all(word in answer.stderr for word in ("[bad_settings]", "--port", "--renew-interval", "SM_ON_SQL_ERROR"))
    assert list(tmp_path.glob("*.db")) == []


def test_a_database_that_is_away_is_waited_for_and_spoken_of_without_its_password(registry):
    with started("serve", "--registry", registry, SM_DATABASE="postgresql://u:hunter2@127.0.0.1:1/x") as waiting:
        said = line_with(waiting.stderr, "store_unreachable")
        waiting.terminate()
        _, rest = waiting.communicate(timeout=20)
    assert (waiting.returncode, "hunter2" in said + rest) == (0, False)
    assert " stopped " in rest.splitlines()[-1]


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_database_that_says_nothing_is_spoken_of_before_the_tables_are_made(registry, database, sqlite_url):
    with ExitStack() as stack:
        if database == "postgres":
            silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            url, said = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/x", "within 4.0 s"
        else:
            other = stack.enter_context(closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))))
            other.execute("BEGIN EXCLUSIVE")
            url, said = sqlite_url, "is locked by another process"
        waiting = stack.enter_context(started("serve", "--registry", registry, SM_DATABASE=url))
        assert said in line_with(waiting.stderr, "waiting" if database == "sqlite" else "store_unreachable")


def test_a_login_that_is_refused_ends_it_with_78(registry, postgres_url):
    answer = run("serve", "--registry", registry, SM_DATABASE=postgres_url.replace("postgres@", "nobody_of_this_name@"))
    assert answer.returncode == 78
    assert "submission-manager: [login_refused]" in answer.stderr


def test_a_database_file_that_cannot_be_made_is_named_and_no_other_programs_command(registry, tmp_path):
    path = tmp_path / "none" / "x.db"
    answer = run("serve", "--registry", registry, "--port", "0", SM_DATABASE=f"sqlite:///{path}")
    assert answer.returncode == 78
    assert f"[bad_url] {path}" in answer.stderr
    assert "fencehold init" not in answer.stderr


def test_help_names_every_option_and_every_variable():
    answer = run("serve", "--help")
    assert answer.returncode == 0
    words = answer.stdout.split()
    assert all(one.option in words and one.variable in words for one in SETTINGS)
    assert run("frobnicate").returncode == 78


def test_sigterm_stops_it_in_order_and_the_log_has_the_events(registry, sqlite_url):
    arguments = ("serve", "--registry", registry, "--port", "0", "--log-format", "json")
    with started(*arguments, SM_DATABASE=sqlite_url, SM_HOLDER_ID="sm-01") as process:
        told: dict[str, Any] = {}
        while not {"serving", "leader_acquired"} <= set(told):  # in whichever order
            line = json.loads(line_with(process.stderr, "event"))
            told[line["event"]] = line
        assert (told["leader_acquired"]["holder_id"], told["leader_acquired"]["lease_epoch"]) == ("sm-01", 1)
        assert httpx.get(told["serving"]["url"] + "/healthz", trust_env=False).text == "ok"
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=END_S)
        assert process.returncode == 0
        events = [json.loads(line)["event"] for line in rest.splitlines()]
        assert [one for one in events if one in ("draining", "leader_released", "stopped")] == [
            "draining", "leader_released", "stopped",
        ]  # fmt: skip


EARLY = """
import signal, sys

class Early:
    def find_spec(self, name, *_):
        if name == "submission_manager.cli.app":
            signal.raise_signal(signal.SIGTERM)

sys.meta_path.insert(0, Early())
from submission_manager.cli import main
main()
"""


def test_sigterm_while_it_is_being_loaded_stops_a_service_in_order_and_any_other_command_as_ever(registry, sqlite_url):
    arguments = [sys.executable, "-c", EARLY]
    given: dict[str, Any] = {"capture_output": True, "text": True, "timeout": END_S}
    given["env"] = ENVIRONMENT | {"SM_DATABASE": sqlite_url, "SM_REGISTRY": registry, "SM_PORT": "0"}
    served = subprocess.run([*arguments, "serve"], check=False, **given)
    assert served.returncode == 0, served.stderr
    assert " stopped " in served.stderr.splitlines()[-1]
    assert " serving " not in served.stderr
    assert subprocess.run([*arguments, "check"], check=False, **given).returncode == -signal.SIGTERM


def test_it_neither_spins_nor_fails_when_there_are_more_clients_than_files(registry, sqlite_url):
    arguments = ("serve", "--registry", registry, "--port", "0", "--request-timeout", "2s")
    with started(*arguments, files_max=256, SM_DATABASE=sqlite_url) as process, ExitStack() as clients:
        host, port = re.findall(r"url=http://(\S+):(\d+)", line_with(process.stderr, "serving"))[0]
        silent = [clients.enter_context(socket.create_connection((host, int(port)))) for _ in range(400)]
        ends = [one.recv(12) for one in silent]  # told at once that there is no place, or closed for saying nothing
        assert set(ends) == {b"", b"HTTP/1.1 503"}
        assert ends.count(b"") == 64
        assert httpx.get(f"http://{host}:{port}/healthz", trust_env=False).text == "ok"
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=END_S)
        assert process.returncode == 0
        assert "Traceback" not in log
        assert log.count("connections_refused") == 1


def test_a_drain_timeout_that_cuts_attempts_says_how_many_and_does_not_exit_0(registry, sqlite_url):
    with started("gateway", "--port", "0", "--hang", "1") as gateway:
        url = line_with(gateway.stdout, "serving on").split()[-1]
        Path(registry).write_text(REGISTRY.replace("http://gateway.test", url))
        arguments = ("serve", "--registry", registry, "--port", "0", "--drain-timeout", "200ms")
        with started(*arguments, SM_DATABASE=sqlite_url, SM_GATEWAY_TIMEOUT="60s") as process:
            address = re.findall(r"url=(\S+)", line_with(process.stderr, "serving"))[0]
            for name in "ab":
                body = {"intentId": name, "submissionTarget": "sms.realtime", "payload": {}}
                httpx.post(f"{address}/v1/intents", json=body, trust_env=False).raise_for_status()
            while httpx.get(f"{url}/calls", trust_env=False).json()["calls"] < 2:
                continue
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=END_S)
    assert process.returncode == 1
    assert re.findall(r"attempts_cut attempts=(\d+) intents=(\".*?\")", log) == [("2", "\"['a', 'b']\"")]
    assert "stopped" in log


@pytest.mark.parametrize(
    ("options", "variable", "is_left"),
    [((), "", 0), (("--no-release-on-stop",), "", 1), ((), "off", 1), (("--release-on-stop",), "off", 0)],
)
def test_the_lease_is_given_back_at_the_end_unless_told_otherwise(registry, sqlite_url, options, variable, is_left):
    arguments = ("serve", "--registry", registry, "--port", "0", *options)
    with started(*arguments, SM_DATABASE=sqlite_url, SM_RELEASE_ON_STOP=variable) as process:
        line_with(process.stderr, "leader_acquired")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=END_S)
    assert process.returncode == 0
    assert (" leader_left_to_lapse " in log, " leader_released " in log) == (bool(is_left), not is_left)
    live = f"SELECT expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now') FROM {LEASE_TABLE}"
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as file:
        assert file.execute(live).fetchall() == [(is_left,)]


def test_a_second_signal_ends_it_at_once(registry, sqlite_url):
    arguments = ("serve", "--registry", registry, "--port", "0", "--drain-timeout", "60s")
    with started(*arguments, SM_DATABASE=sqlite_url) as process:
        url = re.findall(r"url=(\S+)", line_with(process.stderr, "serving"))[0]
        # A request whose body does not come keeps the drain from ending.
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"POST /v1/intents HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{")
            assert httpx.get(url + "/healthz", trust_env=False).text == "ok"  # so the request before it has arrived
            process.send_signal(signal.SIGTERM)
            line_with(process.stderr, "draining")
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=END_S)
        assert process.returncode == 130


def test_a_second_signal_says_which_attempts_it_cuts(registry, sqlite_url):
    with started("gateway", "--port", "0", "--hang", "1") as gateway:
        url = line_with(gateway.stdout, "serving on").split()[-1]
        Path(registry).write_text(REGISTRY.replace("http://gateway.test", url))
        arguments = ("serve", "--registry", registry, "--port", "0", "--drain-timeout", "60s")
        with started(*arguments, SM_DATABASE=sqlite_url, SM_GATEWAY_TIMEOUT="60s") as process:
            address = re.findall(r"url=(\S+)", line_with(process.stderr, "serving"))[0]
            for name in "ab":
                body = {"intentId": name, "submissionTarget": "sms.realtime", "payload": {}}
                httpx.post(f"{address}/v1/intents", json=body, trust_env=False).raise_for_status()
            while httpx.get(f"{url}/calls", trust_env=False).json()["calls"] < 2:
                continue
            process.send_signal(signal.SIGTERM)
            line_with(process.stderr, "draining")
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=END_S)
    assert process.returncode == 130
    assert re.findall(r"attempts_cut attempts=(\d+) intents=(\".*?\")", log) == [("2", "\"['a', 'b']\"")]


def test_a_variable_that_is_no_setting_is_told_of_with_the_one_that_was_meant(registry, sqlite_url):
    with started("serve", "--registry", registry, "--port", "0", SM_DATABASE=sqlite_url, SM_LEASE_DURTION="9s") as it:
        line = line_with(it.stderr, "variable_unknown")
    assert "WARNING" in line
    assert "variable=SM_LEASE_DURTION nearest=SM_LEASE_DURATION" in line


def test_the_variable_of_fencehold_is_told_to_be_ignored_and_the_log_names_the_database(
    registry, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    mine = f"database=sqlite:///{tmp_path.resolve()}/submission-manager.db"
    other = "postgresql://u:hunter2@127.0.0.1:1/x"
    with started("serve", "--registry", registry, "--port", "0", FENCEHOLD_DSN=other) as it:
        told = [line_with(it.stderr, word) for word in ("variable_ignored", "tables_created", "serving")]
    assert all(mine in line for line in told)
    assert "WARNING variable_ignored variable=FENCEHOLD_DSN" in told[0]
    assert "SM_DATABASE" in told[0]
    assert "hunter2" not in "".join(told)


def test_nothing_is_said_of_the_variable_of_fencehold_where_the_database_is_named(registry, sqlite_url):
    with started("serve", "--registry", registry, "--port", "0", SM_DATABASE=sqlite_url, FENCEHOLD_DSN="x") as it:
        assert "FENCEHOLD_DSN" not in "".join(lines_until(it.stderr, "serving"))


def test_the_option_of_fencehold_for_the_database_points_to_the_one_of_the_service(registry):
    answer = run("serve", "--registry", registry, "--dsn", "sqlite:///app.db")
    assert answer.returncode == 78
    assert "--database" in answer.stderr
    assert "SM_DATABASE" in answer.stderr


def test_variables_of_settings_and_of_the_registry_are_known():
    known = {one.variable for one in SETTINGS} | {"SM_INIT", "SM_LOG_FORMAT", "SM_LOG_LEVEL", "PATH"}
    assert unknown_variables(known | {"SM_HOOK_SECRET"}, {"SM_HOOK_SECRET"}) == {}
    assert unknown_variables(["SM_QQQ"]) == {"SM_QQQ": None}


@pytest.mark.parametrize("zero", ["0", "0s", "0ms", 0])
def test_a_drain_delay_of_zero_is_taken_wherever_it_is_given(zero):
    assert settings({"drain_delay": zero}).drain_delay_s == 0
    assert settings({}, {"SM_DRAIN_DELAY": str(zero)}).drain_delay_s == 0
    assert settings().drain_delay_s == 0


def test_the_fake_gateway_serves_until_it_is_told_to_stop(tmp_path):
    with started("gateway", "--port", "0", "--record", str(tmp_path / "calls"), "--delay-max", "5ms") as process:
        url = line_with(process.stdout, "serving on").split()[-1]
        answer = httpx.post(
            url + "/sms/send", json={"referenceId": "r", "to": "1", "message": "x"},
            headers={"Idempotency-Key": "a/1"}, trust_env=False,
        )  # fmt: skip
        assert answer.json()["status"] == "accepted"
        assert httpx.get(url + "/calls", trust_env=False).json() == {
            "calls": 1, "byKey": {"a/1": 1}, "byIntent": {"a": 1},
        }  # fmt: skip
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=END_S)
        assert process.returncode == 0
    assert json.loads((tmp_path / "calls").read_text())["key"] == "a/1"


def test_what_is_given_stands_over_the_variable_and_that_over_the_default():
    chosen = settings({"port": "1"}, {"SM_PORT": "2", "SM_CONCURRENCY": "3", "SM_RETRY_DELAY": "250ms"})
    assert (chosen.port, chosen.concurrency, chosen.retry_delay_s) == (1, 3, 0.25)
    assert (chosen.lease_duration_s, chosen.renew_interval_s, chosen.acquire_interval_s) == (60, 20, 30)
    assert chosen.lease_name == "submission-manager-executor"
    assert (chosen.on_sql_error, chosen.schedule_refresh_interval_s) == ("drop", 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"database": "memory://x"}, {"database": "cosmos://x"}, {"database": "nothing"}, {"lease_duration": "0s"},
        {"renew_interval": "60s"}, {"concurrency": "0"}, {"port": "70000"}, {"body_limit": "-1"}, {"holder_id": " x"},
        {"lease_name": "x" * 65}, {"on_sql_error": "panic"}, {"gateway_timeout": "soon"}, {"release_on_stop": "maybe"},
        {"drain_delay": "-1s"}, {"drain_timeout": "0"},
    ],
)  # fmt: skip
def test_a_setting_that_cannot_work_is_refused_by_its_name(wrong):
    with pytest.raises(ConfigurationError) as caught:
        settings(wrong)
    assert caught.value.code == "bad_settings"

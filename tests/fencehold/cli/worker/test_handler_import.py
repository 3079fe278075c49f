"""What `fencehold worker` is given: found in the current directory, or told exactly what was looked for where."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencehold.cli.app import execute
from fencehold.cli.worker import handler_import
from fencehold.model.errors import ConfigurationError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    before = set(sys.modules)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "events.py").write_text(
        "class Mail:\n    def send(event): ...\nhandlers = {'a': Mail.send}\nbad = {'a': lambda: 0}\n"
    )
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refused(spec: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        handler_import.load(spec)
    return caught.value


def test_a_module_of_the_current_directory_is_found():
    assert list(handler_import.load("shop.events:handlers")) == ["a"]
    assert handler_import.load("shop.events:Mail.send").__name__ == "send"


@pytest.mark.parametrize("spec", ["shop.events", "shop.events:", ":handlers", "shop/events.py:handlers", "", "a:b:c"])
def test_what_names_no_attribute_of_a_module_is_refused(spec):
    assert refused(spec).code == "bad_handler_spec"


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("app.handlers", "app:handlers"), ("./app:handlers", "app:handlers"), ("app.py:sent", "app:sent"),
        ("shop/events.py:handlers", "shop.events:handlers"), ("shop.events.handlers", "shop.events:handlers"),
        ("shop.events", "shop.events:handlers"), ("app", "app:handlers"), ("./app.py", "app:handlers"),
    ],
)  # fmt: skip
def test_a_dot_or_a_path_instead_of_the_module_is_told_with_what_was_meant(spec: str, meant: str) -> None:
    assert refused(spec).hint.startswith(f"Did you mean {meant}?")


def test_a_file_of_another_folder_is_told_with_the_folder_to_go_to(folder: Path) -> None:
    assert (
        "cd /srv/shop && fencehold worker app:handlers (for `handlers` in app.py)" in refused("/srv/shop/app.py").hint
    )
    assert refused("/srv/my shop/app.py:sent").hint.endswith("cd '/srv/my shop' && fencehold worker app:sent")
    assert refused(f"{folder}/app.py:handlers").hint == "Did you mean app:handlers?"


@pytest.mark.parametrize("spec", ["", ":handlers", "a:b:c", "my-app:handlers", "my-app.py", "/:handlers", "..", "."])
def test_what_nobody_can_mean_is_told_with_the_form_of_what_is_taken(spec: str) -> None:
    assert refused(spec).hint == handler_import.SHAPE


@pytest.mark.parametrize("spec", ["stock:handlers", "shop.mail:handlers"])
def test_a_module_that_is_not_there_is_told_with_the_place_that_was_looked_at(folder, spec):
    error = refused(spec)
    assert error.code == "no_such_module"
    assert f"{folder / spec.partition(':')[0].replace('.', '/')}.py" in error.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_like_this", "No module named 'nothing_like_this'"),
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_fails_is_told_as_its_own_fault_with_the_line(folder, text, words):
    (folder / "broken.py").write_text(f"\n{text}\n")
    error = refused("broken:handlers")
    assert error.code == "module_failed"
    assert words in error.message
    assert f"{folder / 'broken.py'}, line 2" in error.message


def test_an_attribute_that_is_not_there_is_told_with_what_is(folder):
    error = refused("shop.events:handlrs")
    assert error.code == "no_such_attribute"
    assert "There is no 'handlrs' in module 'shop.events'" in error.message
    assert str(folder / "shop" / "events.py") in error.message
    assert error.hint == "Did you mean 'handlers'?"
    assert "Mail, bad, handlers" in refused("shop.events:zzz").hint


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["stock:handlers"], "no_such_module"),
        (["shop.events:__name__"], "bad_handler"),
        (["shop.events:bad"], "bad_handler"),
        (["shop.events:handlers", "--lease", "soon"], "bad_duration"),
        (["shop.events:handlers", "--lease", "1s", "--shutdown-timeout", "2s"], "bad_settings"),
        (["shop.events:handlers", "--concurrency", "0"], "bad_usage"),
        (["shop.events:handlers", "--outbox", "No Table"], "bad_name"),
        (["shop.events:handlers", "--worker-id", ""], "bad_name"),
        (["shop.events:handlers", "--metrics-host", "256.0.0.1", "--metrics-port", "0"], "bad_metrics_port"),
        ([], "bad_usage"),
    ],
)
def test_bad_input_is_78_before_anything_is_opened(capsys, arguments, code):
    assert execute(["--dsn", "sqlite:///none.db", "worker", *arguments]) == 78
    assert f"[{code}]" in capsys.readouterr().err
    assert not Path("none.db").exists()

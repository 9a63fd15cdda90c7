"""The tree as it stands: modules, what they define, and what a name of theirs finally is."""

from __future__ import annotations

import ast
import json
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from scopes import Resolver, Scope

FOLDERS = ("src", "tests", "bench", "scripts", "examples", "testkit")


@dataclass
class Module:
    name: str
    path: Path
    text: str
    package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def resolver(self) -> Resolver:
        return Resolver(self.tree)

    @cached_property
    def defined(self) -> dict[str, ast.stmt]:
        """Module-level names by the statement that binds them first, imports aside."""
        found: dict[str, ast.stmt] = {}

        def walk(body) -> None:
            for one in body:
                if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    found.setdefault(one.name, one)
                elif isinstance(one, (ast.Import, ast.ImportFrom)):
                    continue
                elif isinstance(one, (ast.If, ast.Try, ast.With, ast.For)):
                    for part in ("body", "orelse", "finalbody"):
                        walk(getattr(one, part, []))
                    for handler in getattr(one, "handlers", []):
                        walk(handler.body)
                    for target in ast.walk(getattr(one, "target", ast.Pass())):
                        if isinstance(target, ast.Name):
                            found.setdefault(target.id, one)
                else:
                    for node in ast.walk(one):
                        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                            found.setdefault(node.id, one)

        walk(self.tree.body)
        return found


class Project:
    def __init__(self, root: Path) -> None:
        self.root = root
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True
        ).stdout.split("\n")
        self.files = [Path(one) for one in sorted(set(listed)) if one and (root / one).is_file()]
        self.modules: dict[str, Module] = {}
        for path in self.files:
            if path.suffix == ".py" and path.parts[0] in FOLDERS:
                parts = path.with_suffix("").parts
                if parts[0] == "src":
                    parts = parts[1:]
                package = parts[-1] == "__init__"
                name = ".".join(parts[:-1] if package else parts)
                self.modules[name] = Module(name, path, (root / path).read_text(), package)

    def final(self, module: str, name: str, depth: int = 0) -> tuple[str, str | None]:
        """(module, name) of the definition, or (module, None) for a module."""
        assert depth < 20
        sub = f"{module}.{name}"
        found = self.modules.get(module)
        if found is None:
            return (sub, None) if sub in self.modules else (module, name)
        if name in found.defined:
            return module, name
        imported = found.resolver.module.imports.get(name)
        if imported is not None:
            source, attr = imported
            if attr is None:
                return source, None
            return self.final(source, attr, depth + 1)
        if sub in self.modules:
            return sub, None
        return module, name

    def binding(self, module: Module, scope: Scope, name: str) -> tuple[str, str | None] | None:
        """What a name bound in this scope is, where it is a global or imported; None for other locals."""
        imported = scope.imports.get(name)
        if scope.kind != "module":
            # Bound by an import and by nothing else, or we do not touch it.
            if imported is None:
                return None
            return (imported[0], None) if imported[1] is None else self.final(*imported)
        if name in module.defined:
            return module.name, name
        if imported is not None:
            return (imported[0], None) if imported[1] is None else self.final(*imported)
        return None


def whole_map(modules: dict[str, Module]) -> dict[str, str]:
    """Old dotted name -> new one. A module that the map does not know yet is an error: say where it goes."""
    known = json.loads((Path(__file__).parent / "map.json").read_text())
    ours = {name for name in modules if name.split(".")[0] == "twinshore"}
    assert not ours - known.keys(), sorted(ours - known.keys())
    return {old: new for old, new in known.items() if old in modules}

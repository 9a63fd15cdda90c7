"""Renames by lists: `rename.py ROOT LIST.py ...`. Each list holds RENAMES, FILES and ATTRIBUTES; the tree is changed in place."""

from __future__ import annotations

import ast
import collections
import io
import re
import runpy
import subprocess
import sys
import tokenize
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import move
from project import Module, Project


class Renamer(move.Mover):
    def __init__(self, root: Path, lists: list[Path]) -> None:
        self.p = Project(root)
        self.root = root
        self.said: list[str] = []
        self.members, self.dropped = collections.defaultdict(list), set()
        self.renames: dict[tuple[str, str], str] = {}
        self.attributes: dict[tuple[str, str, str], str] = {}
        self.literals: list[tuple[str, str, str]] = []
        self.members_now: dict[tuple[str, str], str] = {}
        files: dict[str, str] = {}
        for path in lists:
            read = runpy.run_path(str(path))
            for (module, name), new in read.get("RENAMES", {}).items():
                full = module if module.split(".")[0] == "testkit" else f"twinshore.{module}"
                if full not in self.p.modules or name not in self.p.modules[full].defined:
                    self.say(f"UNKNOWN {module}.{name}")
                elif new != name:
                    self.renames[full, name] = new
            for (module, owner, name), new in read.get("ATTRIBUTES", {}).items():
                if new != name:
                    self.attributes[f"twinshore.{module}", owner, name] = new
            files |= {f"twinshore.{a}": f"twinshore.{b}" for a, b in read.get("FILES", {}).items()}
            self.literals += read.get("LITERALS", [])
            for (_, was), now in read.get("QUALIFIED", {}).items():
                self.members_now[tuple(was.split("."))] = now.split(".")[1]
            for (_, owner, was), now in read.get("MEMBERS", {}).items():
                self.members_now[owner, was] = now
        for old in files:
            if old not in self.p.modules:
                self.say(f"UNKNOWN FILE {old}")
        self.map = {name: files.get(name, name) for name in self.p.modules if name.split(".")[0] in ("twinshore", "testkit")}
        self.moved = {a: b for a, b in files.items() if a in self.p.modules}
        self._judge()
        # What a page or a docstring means by a class's name: only one definition ever bore it.
        bearers = collections.Counter(n for m in self.p.modules.values() if m.name in self.map for n in m.defined)
        self.plain = {n: new for (m, n), new in self.renames.items() if bearers[n] == 1 and re.search("[A-Z].*[a-z]|_", n)}

    def _judge(self) -> None:
        """Clashes: a new name that the module, or one that imports it, has for something else."""
        for (module, name), new in sorted(self.renames.items()):
            found = self.p.modules[module]
            taken = set(found.defined) - {n for m, n in self.renames if m == module}
            taken |= set(found.resolver.module.imports) - {n for n in found.resolver.module.imports if self._import_renamed(found, n)}
            others = {b for (m, n), b in self.renames.items() if m == module and n != name}
            if new in taken or new in others:
                self.say(f"CLASH {module}.{name} -> {new}: dropped")
                del self.renames[module, name]

    def _import_renamed(self, mod: Module, name: str) -> bool:
        source, attr = mod.resolver.module.imports[name]
        return attr is not None and self.p.final(source, attr) in self.renames


class Renamed(move.File):
    def __init__(self, renamer: Renamer, mod: Module) -> None:
        self.face = mod.name in move.KEPT_FACES
        super().__init__(renamer, mod)

    def _apply(self) -> str:
        first: dict[tuple[int, int], str] = {}
        for start, end, text in self.edits:
            first.setdefault((start, end), text)
        self.edits = [(start, end, text) for (start, end), text in first.items()]
        return super()._apply()

    def _imports(self) -> None:
        self.moves = False
        super()._imports()
        if self.face or self.mod.name.split(".")[-1] and "__all__" in self.mod.defined:
            node = self.mod.defined["__all__"] if "__all__" in self.mod.defined else None
            for one in ast.walk(node) if node else ():
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    new = self._name_here(one.value)
                    if new != one.value:
                        self.edit(*self.span(one), f'"{new}"')

    def one_import(self, module, name, asname, scope):
        if module in move.KEPT_FACES and self.mod.path.parts[0] != "src":
            new = self.m.renames.get(self.p.final(module, name), name)
            return (module, new, asname), None if asname or new == name else new
        return super().one_import(module, name, asname, scope)

    def _name_here(self, name: str) -> str:
        mod = self.mod
        if name in mod.defined:
            return self.m.renames.get((mod.name, name), name)
        if name in mod.resolver.module.imports:
            source, attr = mod.resolver.module.imports[name]
            return self.m.renames.get(self.p.final(source, attr), name) if attr else name
        return name if name in self._all_bound() else self.m.plain.get(name, name)

    def _strings(self) -> None:
        self._attributes()
        spans = [(x, y) for x, y, _ in self.edits]
        docs: dict[int, set[str]] = {}
        for node in ast.walk(self.mod.tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node) is not None:
                near: set[str] = set()
                scope = self.mod.resolver.of_node.get(id(node))
                while scope is not None and scope.kind != "module":
                    near |= scope.bound
                    scope = scope.parent
                docs[node.body[0].lineno] = near
        everywhere = self._all_bound()
        for token in tokenize.generate_tokens(io.StringIO(self.mod.text).readline):
            if token.type not in (tokenize.STRING, tokenize.COMMENT):
                continue
            start = self.at(token.start[0], len(self.lines[token.start[0] - 1][: token.start[1]].encode()))
            end = self.at(token.end[0], len(self.lines[token.end[0] - 1][: token.end[1]].encode()))
            if any(x < end and start < y for x, y in spans):
                continue
            new = move.rewrite_dotted(self.m, token.string)
            if token.type == tokenize.STRING and token.start[0] not in docs:
                for found in re.finditer(r"from ((?:twinshore|testkit)(?:\.\w+)*) import ([\w, ]+)", token.string):
                    for name in re.findall(r"\w+", found.group(2)):
                        now = self.m.renames.get(self.p.final(found.group(1), name))
                        if now:
                            new = re.sub(rf"(?<![\w.]){name}\b", now, new)
            if token.type == tokenize.COMMENT or token.start[0] in docs:
                near = docs.get(token.start[0], everywhere)
                new = re.sub(
                    r"`(\w+)(\(\))?`",
                    lambda f: f.group(0) if f.group(1) in near and not f.group(2) else f"`{self._name_here(f.group(1))}{f.group(2) or ''}`",
                    new,
                )
                new = re.sub(r"`(\w+)\.(\w+)`", lambda f: f"`{self._name_here(f.group(1))}.{self.m.attribute_names.get(f.group(2), f.group(2))}`", new)
                new = re.sub(r"`(\w+)`", lambda f: f"`{self.m.attribute_names.get(f.group(1), f.group(1))}`" if "_" in f.group(1) and f.group(1) not in self._all_bound() else f.group(0), new)
            if new != token.string:
                self.edit(start, end, new)

    def _attributes(self) -> None:
        done = {(x, y) for x, y, _ in self.edits}
        names = self.m.attribute_names
        owners = collections.defaultdict(dict)
        for (module, owner, name), new in self.m.attributes.items():
            owners[module, owner][name] = new
        for node in ast.walk(self.mod.tree):
            if isinstance(node, ast.ClassDef) and (self.mod.name, node.name) in owners:
                mine = owners[self.mod.name, node.name]
                for one in node.body:
                    if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and one.name in mine:
                        self._rename_definition(one, one.name, mine[one.name])
                    elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.target.id in mine:
                        self.edit(*self.span(one.target), mine[one.target.id])
                    elif isinstance(one, ast.Assign):
                        for target in one.targets:
                            for name in ast.walk(target):
                                if isinstance(name, ast.Name) and name.id in mine:
                                    self.edit(*self.span(name), mine[name.id])
            if isinstance(node, ast.ClassDef):
                for one in node.body:
                    for target in one.targets if isinstance(one, ast.Assign) else ():
                        if isinstance(target, ast.Name) and (node.name, target.id) in self.m.members_now and self.mod.name in self.m.map:
                            self.edit(*self.span(target), self.m.members_now[node.name, target.id])
            if isinstance(node, ast.Attribute) and self._owner(node.value) and (self._owner(node.value), node.attr) in self.m.members_now:
                end = self.at(node.end_lineno, node.end_col_offset)
                self.edit(end - len(node.attr.encode()), end, self.m.members_now[self._owner(node.value), node.attr])
            elif isinstance(node, ast.Attribute) and node.attr in names:
                end = self.at(node.end_lineno, node.end_col_offset)
                self.edit(end - len(node.attr.encode()), end, names[node.attr])
            if isinstance(node, ast.Call):
                for word in node.keywords:
                    if word.arg in names and self._makes(node.func, word.arg):
                        start = self.at(word.lineno, word.col_offset)
                        self.edit(start, start + len(word.arg.encode()), names[word.arg])
                f = node.func
                if (isinstance(f, ast.Attribute) and f.attr in ("setattr", "delattr") or isinstance(f, ast.Name) and f.id in ("getattr", "setattr", "hasattr")) and len(node.args) >= 2:
                    word = node.args[1]
                    if isinstance(word, ast.Constant) and word.value in names:
                        self.edit(*self.span(word), f'"{names[word.value]}"')
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
                made, name = node.value, node.targets[0].id
                first = made.args[0] if made.args else None
                if self._owner(made.func) in ("TypeVar", "NewType", "namedtuple") and isinstance(first, ast.Constant) and first.value == name:
                    self.edit(*self.span(first), f'"{self._name_here(name)}"')
            if isinstance(node, ast.MatchClass):
                for i, word in enumerate(node.kwd_attrs):
                    if word in names:
                        self.m.say(f"BY HAND {self.mod.name}:{node.lineno} match {word}")
        assert done <= {(x, y) for x, y, _ in self.edits}

    def _owner(self, node: ast.expr) -> str:
        return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""

    def _makes(self, func: ast.expr, word: str) -> bool:
        """Whether the call makes one of the classes that have this field, or copies one."""
        name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
        return name in ("replace", "_replace") or name in self.m.owners_of.get(word, ())


def main(root: Path, lists: list[Path]) -> None:
    early = [one for path in lists for one in runpy.run_path(str(path)).get("LITERALS", [])]
    for name, was, now in early:
        text = (root / name).read_text()
        assert was in text, (name, was)
        (root / name).write_text(text.replace(was, now))
    m = Renamer(root, lists)
    attributes: dict[str, set[str]] = collections.defaultdict(set)
    owners: dict[str, set[str]] = collections.defaultdict(set)
    for (module, owner, name), new in m.attributes.items():
        attributes[name].add(new)
        owners[name] |= {owner, m.renames.get((module, owner), owner)}
    for name, news in attributes.items():
        if len(news) > 1:
            m.say(f"TWO NAMES {name}: {news}: dropped")
    m.attributes = {k: v for k, v in m.attributes.items() if len(attributes[k[2]]) == 1}
    m.attribute_names = {name: next(iter(news)) for name, news in attributes.items() if len(news) == 1}
    m.owners_of = owners
    outputs = {mod.path: Renamed(m, mod).text for mod in m.p.modules.values()}
    for path in m.p.files:
        if path.suffix in (".md", ".toml", ".sh", ".yml", ".service", ".java", ".cpp", ".hpp") or path.name in ("Makefile", "run"):
            text = (root / path).read_text()
            new = move.rewrite_dotted(m, text)
            if path.suffix == ".md":
                new = re.sub(r"`(\w+)(\(\))?`", lambda f: f"`{m.plain.get(f.group(1), f.group(1))}{f.group(2) or ''}`", new)
            outputs[path] = new
    for path, text in outputs.items():
        if (root / path).read_text() != text:
            (root / path).write_text(text)
    for old, new in m.moved.items():
        a, b = (root / "src" / Path(*x.split(".")).with_suffix(".py") for x in (old, new))
        if not a.exists():
            a, b = a.with_suffix(""), b.with_suffix("")
        b.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", a.relative_to(root), b.relative_to(root)], cwd=root, check=True)
    for line in m.said:
        print(line)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(one) for one in sys.argv[2:]])

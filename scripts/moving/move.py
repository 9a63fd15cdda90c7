"""Moves and merges modules by the map, and rewrites every use. `move.py ROOT` changes the tree in place.

What it does not decide it lists: clashes of names that it renamed, captures, odd uses of a module.
"""

from __future__ import annotations

import ast
import collections
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from project import whole_map, Module, Project, whole_map
from renames import RENAMES
from scopes import Scope


KEPT_FACES = {"twinshore.client"}
# Topics on clusters that are called as a package was.
FROZEN = {"twinshore.homes", "twinshore.groups"}


class Mover:
    def __init__(self, root: Path) -> None:
        self.p = Project(root)
        self.root = root
        self.map = whole_map(self.p.modules)
        self.said: list[str] = []
        self.members: dict[str, list[str]] = collections.defaultdict(list)
        for old, new in self.map.items():
            if old.startswith("twinshore") and not self.p.modules[old].package:
                self.members[new].append(old)
        self.dropped: set[tuple[str, str]] = set()
        self.renames: dict[tuple[str, str], str] = {}
        for target in list(self.members):
            self.members[target] = self._ordered(target)
            self._clashes(target)
        self._faces()

    # -- names

    def _ordered(self, target: str) -> list[str]:
        """What is imported at the top stands before its importers."""
        olds = sorted(self.members[target], key=lambda o: (o.count("."), o))
        needs = {o: self._needs(o) & set(olds) - {o} for o in olds}
        done: list[str] = []
        while len(done) < len(olds):
            ready = [o for o in olds if o not in done and not needs[o] - set(done)]
            assert ready, (target, needs)
            done.append(ready[0])
        return done

    def _needs(self, old: str) -> set[str]:
        found = set()
        for one in self.p.modules[old].tree.body:
            if isinstance(one, ast.ImportFrom):
                for a in one.names:
                    found.add(self.p.final(one.module, a.name)[0])
        return found

    def _clashes(self, target: str) -> None:
        olds = self.members[target]
        defined = collections.defaultdict(list)
        for o in olds:
            for name in self.p.modules[o].defined:
                defined[name].append(o)
        used_free = collections.defaultdict(set)
        imported = collections.defaultdict(set)
        for o in olds:
            r = self.p.modules[o].resolver
            for _, name, scope in r.uses:
                if scope is None:
                    used_free[name].add(o)
            for name, (mod, attr) in r.module.imports.items():
                what = (mod, None) if attr is None else self.p.final(mod, attr)
                imported[name].add((what, o))
        for name, where in defined.items():
            if name == "__all__":
                continue
            if len(where) > 1:
                bodies = {ast.dump(self.p.modules[o].defined[name]) for o in where}
                node = self.p.modules[where[0]].defined[name]
                plain = isinstance(node, (ast.Assign, ast.AnnAssign)) and len(bodies) == 1 and self._same_meaning(name, where)
                if plain:
                    for o in where[1:]:
                        self.dropped.add((o, name))
                    self.say(f"DEDUPED {target}: {name} of {where}")
                    continue
                for o in where:
                    wanted = RENAMES.get((o.removeprefix("twinshore."), name))
                    if wanted is None and o != where[-1]:
                        stem = o.rsplit(".", 1)[1]
                        bare = name.lstrip("_")
                        wanted = (f"{stem.upper()}_{bare}" if bare.isupper() else f"{stem}_{bare}" if bare[0].islower() else f"{''.join(w.title() for w in stem.split('_'))}{bare}")
                        if name.startswith("_"):
                            wanted = "_" + wanted
                    if wanted and wanted != name:
                        self.renames[o, name] = wanted
                        self.say(f"RENAMED {target}: {name} of {o} -> {wanted}")
            others = {w for w, o in imported.get(name, ()) if o not in where and w not in {(x, name) for x in where}}
            if others:
                self.say(f"IMPORT CLASH {target}: {name} defined in {where}, imported as {others}")
                self._rename_away(target, where, name)
            free = used_free.get(name, set()) - set(where)
            if free:
                self.say(f"BUILTIN CLASH {target}: {name} defined in {where}, builtin in {free}")
                self._rename_away(target, where, name)
        for name, whats in imported.items():
            if len({w for w, _ in whats if self.map.get(w[0]) != target}) > 1 and len({self.map.get(w[0], w[0]) + "." + str(w[1]) for w, _ in whats}) > 1:
                self.say(f"IMPORTS DIFFER {target}: {name} {whats}")
        for (o, name), new in RENAMES.items():
            o = f"twinshore.{o}"
            if o in olds and name in self.p.modules[o].defined:
                self.renames.setdefault((o, name), new)

    def _rename_away(self, target: str, where: list[str], name: str) -> None:
        for o in where:
            if (o, name) not in self.renames:
                stem = o.rsplit(".", 1)[1]
                new = RENAMES.get((o.removeprefix("twinshore."), name)) or (f"{name}_of_{stem}" if name.islower() else f"{stem}_{name}")
                self.renames[o, name] = new
                self.say(f"  RENAMED {name} of {o} -> {new}")

    def _same_meaning(self, name: str, where: list[str]) -> bool:
        """Every name of the statement is the same thing in each module."""
        meanings = set()
        for o in where:
            mod = self.p.modules[o]
            node = mod.defined[name]
            inner = {id(n) for n in ast.walk(node)}
            meanings.add(tuple(
                str(self.p.binding(mod, s, n) if s else n) for u, n, s in mod.resolver.uses if id(u) in inner and n != name
            ))
        return len(meanings) == 1

    def say(self, text: str) -> None:
        self.said.append(text)

    def _faces(self) -> None:
        """Definitions in a package's own file go with it; what it passes on is asked for where it is defined."""
        for old, mod in self.p.modules.items():
            if old in self.map and mod.package:
                kept = [n for n in mod.defined if n != "__all__"]
                if kept:
                    self.say(f"FACE DEFINES {old}: {kept}")

    def new_of(self, module: str, name: str) -> tuple[str, str]:
        """Where a definition stands afterwards, and what it is called."""
        return self.map.get(module, module), self.renames.get((module, name), name)

    # -- one file

    def rewritten(self, mod: Module) -> "File":
        return File(self, mod)


class File:
    """One module's text with every import and every use rewritten, imports at the top taken out when it is merged."""

    def __init__(self, mover: Mover, mod: Module) -> None:
        self.m, self.p, self.mod = mover, mover.p, mod
        self.target = mover.map.get(mod.name, mod.name)
        self.moves = mod.name in mover.map and mod.name.startswith("twinshore") and not mod.package
        self.lines = mod.text.split("\n")
        self.edits: list[tuple[int, int, str]] = []
        starts = [0]
        for line in mod.text.split("\n"):
            starts.append(starts[-1] + len(line.encode()) + 1)
        self.starts = starts
        self.raw = mod.text.encode()
        self.top: set[tuple[str, str | None, str | None]] = set()
        self.typed: set[tuple[str, str | None, str | None]] = set()
        self.alias_now: dict[tuple[int, str], str | None] = {}
        self._imports()
        self._uses()
        if self.moves:
            self._drop()
        self._strings()
        self.text = self._apply()

    def at(self, line: int, col: int) -> int:
        return self.starts[line - 1] + col

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def edit(self, start: int, end: int, text: str) -> None:
        self.edits.append((start, end, text))

    def _apply(self) -> str:
        out, at = [], 0
        last = -1
        for start, end, text in sorted(set(self.edits)):
            assert start >= last, (self.mod.name, self.raw[start:end], text)
            out.append(self.raw[at:start])
            out.append(text.encode())
            at = last = end
        out.append(self.raw[at:])
        return b"".join(out).decode()

    # -- imports

    def _all_bound(self) -> set[str]:
        if not hasattr(self, "_bound"):
            found = set()
            for scope in [self.mod.resolver.module, *self.mod.resolver.of_node.values()]:
                if isinstance(scope, Scope):
                    found |= scope.bound
            if self.moves:
                for o in self.m.members[self.target]:
                    found |= {self.m.renames.get((o, n), n) for n in self.p.modules[o].defined}
                    found |= set(self.p.modules[o].resolver.module.imports)
            self._bound = found
        return self._bound

    def one_import(self, module: str, name: str, asname: str | None, scope: Scope) -> tuple[tuple[str, str | None, str | None] | None, str | None]:
        """The import that takes its place (None: none is needed), and what the local name becomes (None: as it was)."""
        where, final = self.p.final(module, name)
        if module in KEPT_FACES and self.mod.path.parts[0] != "src":
            return (module, name, asname), None
        if final is None and where in self.m.map and where.startswith("tests"):
            package, last = self.m.map[where].rsplit(".", 1)
            return (package, last, asname), None
        if final is None and where in self.m.map or (final is None and where.split(".")[0] in ("twinshore",)):
            new = self.m.map[where]
            if self.p.modules[where].package:
                package, last = new.rsplit(".", 1)
                return (package, last, asname if asname else None if last == name else name), None if (asname or last == name) else name
            if new == self.target and self.moves:
                return None, "\0module"
            package, last = new.rsplit(".", 1)
            if asname:
                return (package, last, asname), None
            if last == name:
                return (package, last, None), None
            # The new name of the module, where nothing else here has it.
            fellows = {m.map[w] for w, f in self._module_imports() if (m := self.m) and m.map[w].rsplit(".", 1)[1] == last}
            if last in self._all_bound() and not self._only_that_module(last) or len(fellows) > 1:
                return (package, last, name), None
            return (package, last, None), last
        if where in self.m.map and where.startswith("tests"):
            return (self.m.map[where], final or name, asname), None
        if where not in self.m.map:
            if where in self.p.modules or where.split(".")[0] == "twinshore":
                pass
            return (module if where.split(".")[0] != "twinshore" else where, name, asname), None
        new_module, new_name = self.m.new_of(where, final)
        if new_module == self.target and self.moves:
            return None, new_name
        if asname:
            return (new_module, new_name, asname), None
        if new_name != name:
            return (new_module, new_name, None), new_name
        return (new_module, new_name, None), None

    def _module_imports(self):
        if not hasattr(self, "_mi"):
            self._mi = set()
            for scope in [self.mod.resolver.module, *[s for s in self.mod.resolver.of_node.values() if isinstance(s, Scope)]]:
                for name, (mod, attr) in scope.imports.items():
                    if attr is not None:
                        w, f = self.p.final(mod, attr)
                        if f is None and w in self.m.map:
                            self._mi.add((w, None))
        return self._mi

    def _only_that_module(self, last: str) -> bool:
        """Whether each binding of that name here is an import of a module that is called so afterwards."""
        for scope in [self.mod.resolver.module, *[s for s in self.mod.resolver.of_node.values() if isinstance(s, Scope)]]:
            if last in scope.bound:
                mod, attr = scope.imports.get(last, ("", None))
                if attr is None:
                    return False
                w, f = self.p.final(mod, attr)
                if f is not None or w not in self.m.map or self.m.map[w].rsplit(".", 1)[1] != last:
                    return False
        if self.moves:
            for o in self.m.members[self.target]:
                if last in self.p.modules[o].defined:
                    return False
                if o != self.mod.name and last in self.p.modules[o].resolver.module.imports:
                    mod, attr = self.p.modules[o].resolver.module.imports[last]
                    w, f = self.p.final(mod, attr) if attr else (mod, None)
                    if f is not None or self.m.map.get(w, "").rsplit(".", 1)[-1] != last:
                        return False
        return True

    def _imports(self) -> None:
        tree = self.mod.tree
        top = {id(n) for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))}
        typed: set[int] = set()
        self.typing_blocks = []
        for one in tree.body:
            if isinstance(one, ast.If) and isinstance(one.test, ast.Name) and one.test.id == "TYPE_CHECKING":
                if all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in one.body) and not one.orelse:
                    typed |= {id(n) for n in one.body}
                    self.typing_blocks.append(one)
        self.local_now: dict[tuple[int, str], str] = {}
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            scope = self.mod.resolver.of_node.get(id(node), self.mod.resolver.module)
            new: list[tuple[str, str | None, str | None]] = []
            if isinstance(node, ast.Import):
                for a in node.names:
                    if a.name.split(".")[0] == "twinshore" and a.name != "twinshore":
                        mapped = self.m.map.get(a.name)
                        if mapped is None or not a.asname:
                            self.m.say(f"BY HAND {self.mod.name}:{node.lineno} import {a.name}")
                        new.append((mapped or a.name, None, a.asname))
                    else:
                        new.append((a.name, None, a.asname))
            else:
                if node.module == "__future__":
                    if self.moves:
                        self.cut_statement(node)
                    continue
                for a in node.names:
                    made, becomes = self.one_import(node.module, a.name, a.asname, scope)
                    if made is not None:
                        new.append(made)
                    if becomes is not None:
                        self.local_now[id(scope), a.asname or a.name] = becomes
            if self.moves and id(node) in top:
                self.top |= set(new)
                self.cut_statement(node)
            elif self.moves and id(node) in typed:
                self.typed |= set(new)
            else:
                before = [(n, None, s) for n, s in ((a.name, a.asname) for a in node.names)] if isinstance(node, ast.Import) else [
                    (node.module, a.name, a.asname) for a in node.names
                ]
                if new == before:
                    continue
                if not new:
                    self.cut_statement(node)
                    parent = self._parent_body(node)
                    if parent is not None and len(parent) == 1:
                        self.m.say(f"EMPTY BLOCK {self.mod.name}:{node.lineno}")
                    continue
                indent = " " * node.col_offset
                text = ("\n" + indent).join(_import_text(one) for one in _grouped(new))
                start, end = self.span(node)
                self.edit(start, end, text)
        if self.moves:
            for block in self.typing_blocks:
                self.cut_statement(block)

    def _parent_body(self, node):
        for one in ast.walk(self.mod.tree):
            for part in ("body", "orelse", "finalbody"):
                body = getattr(one, part, None)
                if isinstance(body, list) and node in body:
                    return body
        return None

    def cut_statement(self, node: ast.stmt) -> None:
        start = self.at(node.lineno, 0)
        end = self.starts[node.end_lineno]
        tail = self.raw[self.at(node.end_lineno, node.end_col_offset):end]
        if tail.strip():
            self.m.say(f"COMMENT LOST {self.mod.name}:{node.lineno} {tail.decode().strip()}")
        self.edit(start, min(end, len(self.raw)), "")

    # -- uses

    def _uses(self) -> None:
        mod = self.mod
        attributes = {}
        calls = []
        for node in ast.walk(mod.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                attributes[id(node.value)] = node
            if isinstance(node, ast.Call):
                calls.append(node)
        in_setattr = {}
        for call in calls:
            f = call.func
            if isinstance(f, ast.Attribute) and f.attr in ("setattr", "delattr", "object", "getattr") and len(call.args) >= 2:
                if isinstance(call.args[0], ast.Name) and isinstance(call.args[1], ast.Constant):
                    in_setattr[id(call.args[0])] = call.args[1]
            if isinstance(f, ast.Name) and f.id in ("getattr", "setattr") and len(call.args) >= 2:
                if isinstance(call.args[0], ast.Name) and isinstance(call.args[1], ast.Constant):
                    in_setattr[id(call.args[0])] = call.args[1]
        for node, name, scope in mod.resolver.uses:
            if scope is None:
                continue
            what = self.p.binding(mod, scope, name)
            if what is None:
                continue
            module, attr = what
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global)):
                if attr is not None and module == mod.name and (module, attr) in self.m.renames and scope.kind == "module":
                    self._rename_definition(node, name, self.m.renames[module, attr])
                continue
            if attr is None and module in self.m.map:
                self._module_use(node, name, scope, module, attributes.get(id(node)), in_setattr.get(id(node)))
                continue
            if scope.kind == "module" and name in mod.defined:
                now = self.m.renames.get((mod.name, name), name)
            else:
                now = self.local_now.get((id(scope), name), name)
            if now != name:
                self._check_capture(node, name, now, scope)
                start, end = self.span(node)
                self.edit(start, end, now)

    def _rename_definition(self, node, old: str, new: str) -> None:
        start = self.at(node.lineno, node.col_offset)
        found = re.compile(rb"\b" + old.encode() + rb"\b").search(self.raw, start)
        assert found
        self.edit(found.start(), found.end(), new)

    def _module_use(self, node, name, scope, module, attribute, constant) -> None:
        now = self.local_now.get((id(scope), name), name)
        gone = now == "\0module"
        if attribute is not None:
            where, final = self.p.final(module, attribute.attr)
            if final is None:
                self.m.say(f"BY HAND {self.mod.name}:{node.lineno} {name}.{attribute.attr} is a module")
                return
            new_module, new_name = self.m.new_of(where, final)
            if new_module != self.m.map[module] and where in self.m.map:
                self.m.say(f"BY HAND {self.mod.name}:{node.lineno} {name}.{attribute.attr} now of {new_module}")
            start, end = self.span(attribute)
            if gone:
                self._check_capture(node, name, new_name, scope)
                self.edit(start, end, new_name)
            else:
                new = f"{now}.{new_name}"
                if new != f"{name}.{attribute.attr}":
                    if now != name:
                        self._check_capture(node, name, now, scope)
                    self.edit(start, end, new)
            return
        if gone:
            self.m.say(f"BY HAND {self.mod.name}:{node.lineno} module {name} is this one now")
            return
        if now != name:
            self._check_capture(node, name, now, scope)
            start, end = self.span(node)
            self.edit(start, end, now)
        if constant is not None and isinstance(constant.value, str):
            new_module, new_name = self.m.new_of(*self.p.final(module, constant.value)) if constant.value in self._names_of(module) else (None, constant.value)
            if new_name != constant.value:
                start, end = self.span(constant)
                self.edit(start, end, f'"{new_name}"')

    def _names_of(self, module: str) -> set[str]:
        found = self.p.modules[module]
        return set(found.defined) | set(found.resolver.module.imports)

    def _check_capture(self, node, old: str, new: str, scope: Scope) -> None:
        """Whether the new name is bound between the use and where it should come from."""
        around = self._scopes_of(node)
        for one in around:
            if one is scope and scope.kind != "module":
                others = {n for n in one.bound if n == new and n != old}
                if others:
                    self.m.say(f"CAPTURE {self.mod.name}:{node.lineno} {old} -> {new}")
                return
            if one.kind == "module":
                return
            if new in one.bound and (one.kind != "class" or one is around[0]):
                self.m.say(f"CAPTURE {self.mod.name}:{node.lineno} {old} -> {new}")
                return

    def _scopes_of(self, node) -> list[Scope]:
        if not hasattr(self, "_around"):
            self._around = {}

            def walk(n, stack):
                mine = self.mod.resolver.of_node.get(id(n))
                if isinstance(mine, Scope) and not isinstance(n, (ast.Import, ast.ImportFrom)):
                    stack = [mine, *stack]
                self._around[id(n)] = stack
                for child in ast.iter_child_nodes(n):
                    walk(child, stack)

            walk(self.mod.tree, [self.mod.resolver.module])
        return self._around.get(id(node), [])

    def _drop(self) -> None:
        for o, name in self.m.dropped:
            if o == self.mod.name:
                self.cut_statement(self.mod.defined[name])
        if "__all__" in self.mod.defined:
            self.cut_statement(self.mod.defined["__all__"])
        first = self.mod.tree.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            self.cut_statement(first)

    # -- dotted paths in strings and comments

    def _strings(self) -> None:
        spans = [(x, y) for x, y, _ in self.edits]
        for token in tokenize.generate_tokens(io.StringIO(self.mod.text).readline):
            if token.type not in (tokenize.STRING, tokenize.COMMENT):
                continue
            lines = self.lines
            start = self.at(token.start[0], len(lines[token.start[0] - 1][: token.start[1]].encode()))
            end = self.at(token.end[0], len(lines[token.end[0] - 1][: token.end[1]].encode()))
            new = rewrite_dotted(self.m, token.string)
            if new != token.string and not any(x < end and start < y for x, y in spans):
                self.edit(start, end, new)


def rewrite_dotted(m: Mover, text: str) -> str:
    def dotted(found: re.Match) -> str:
        whole = found.group(0)
        if whole in FROZEN:
            return whole
        parts = whole.split(".")
        for n in range(len(parts), 1, -1):
            head = ".".join(parts[:n])
            if head in m.map:
                rest = parts[n:]
                if rest and not m.p.modules[head].package:
                    where, final = m.p.final(head, rest[0])
                    if final is not None and where == head and (where, final) in m.renames:
                        rest = [m.renames[where, final], *rest[1:]]
                elif rest and m.p.modules[head].package:
                    where, final = m.p.final(head, rest[0])
                    if final is not None and where in m.map:
                        new_module, new_name = m.new_of(where, final)
                        return ".".join([new_module, new_name, *rest[1:]])
                return ".".join([m.map[head], *rest])
        return whole

    text = re.sub(r"(?<![\w./])twinshore(?:\.[A-Za-z_][A-Za-z_0-9]*)+", dotted, text)

    def path(found: re.Match) -> str:
        whole = found.group(0)
        name = whole.removesuffix(".py").removeprefix("src/").replace("/", ".")
        if name in m.map and not m.p.modules[name].package:
            new = m.map[name]
            return ("src/" if whole.startswith("src/") and new.startswith("twinshore") else "") + new.replace(".", "/") + ".py"
        return whole

    def short(found: re.Match) -> str:
        """A module as pages and docstrings name it: `replication/task/core/partition.py`, `routing.core.subscribers`."""
        name, ending = found.group(1), found.group(2) or ""
        dotted = "twinshore." + name.replace("/", ".")
        if dotted not in m.map and ending:
            # A page on one package leaves its name out.
            like = [one for one in m.map if one.startswith("twinshore.") and one.endswith("." + name.replace("/", "."))]
            dotted = like[0] if len(like) == 1 else dotted
        if dotted not in m.map or m.p.modules[dotted].package or ("/" in name) != bool(ending):
            return found.group(0)
        new = m.map[dotted].removeprefix("twinshore.")
        return f"`{new.replace('.', '/') if ending else new}{ending}`"

    text = re.sub(r"`([a-z_]+(?:[./][a-z_0-9]+)*?)(\.py)?`", short, text)
    text = re.sub(r"(?:src/)?twinshore(?:/[a-z_0-9]+)+\.py", path, text)
    return re.sub(r"(?<![\w/])tests(?:/[a-z_0-9]+)+\.py", path, text)


def _import_text(one) -> str:
    module, names = one
    if names is None:
        return f"import {module[0]}" + (f" as {module[1]}" if module[1] else "")
    return f"from {module} import " + ", ".join(n + (f" as {a}" if a else "") for n, a in names)


def _grouped(new):
    found: dict = {}
    plain = []
    for module, name, asname in new:
        if name is None:
            plain.append(((module, asname), None))
        else:
            found.setdefault(module, [])
            if (name, asname) not in found[module]:
                found[module].append((name, asname))
    return [*sorted(plain, key=str), *sorted(found.items())]


def merged(m: Mover, outputs: dict[Path, str], gone: set[Path]) -> None:
    """Modules that move or merge."""
    for target, olds in m.members.items():
        parts = target.split(".")
        path = Path("src", *parts).with_suffix(".py") if parts[0] == "twinshore" else Path(*parts).with_suffix(".py")
        files = [File(m, m.p.modules[o]) for o in olds]
        docs = []
        for f in files:
            doc = ast.get_docstring(f.mod.tree, clean=False)
            if doc:
                docs.append(rewrite_dotted(m, doc.strip()))
        top = set().union(*[f.top for f in files])
        typed = set().union(*[f.typed for f in files]) - top
        if any("__all__" in f.mod.defined for f in files):
            m.say(f"HAS __all__ {olds}")
        text = ['"""' + "\n\n".join(docs) + ('\n"""' if "\n" in "\n\n".join(docs) else '"""')] if docs else []
        text.append("from __future__ import annotations\n")
        text.append("\n".join(_import_text(one) for one in _grouped(sorted(top, key=str))))
        if typed:
            text.append("if TYPE_CHECKING:\n" + "\n".join("    " + _import_text(one) for one in _grouped(sorted(typed, key=str))))
        for f in files:
            text.append(f.text.strip("\n"))
        outputs[path] = "\n\n".join(text) + "\n"
        for o in olds:
            gone.add(m.p.modules[o].path)


def packages_of(m: Mover, outputs: dict[Path, str], gone: set[Path]) -> None:
    """What packages say of themselves."""
    packages: dict[str, list[str]] = collections.defaultdict(list)
    for old, new in m.map.items():
        if old.startswith("twinshore.") and m.p.modules[old].package:
            packages[new].append(old)
            gone.add(m.p.modules[old].path)
    for new, olds in packages.items():
        parts = new.split(".")
        path = Path("src", *parts, "__init__.py") if parts[0] == "twinshore" else Path(*parts, "__init__.py")
        first = min(olds, key=lambda o: (o.count("."), -len(m.p.modules[o].text)))
        doc = "\n\n".join(filter(None, ((ast.get_docstring(m.p.modules[o].tree, clean=False) or "").strip() for o in sorted(olds, key=lambda o: o.count(".")))))
        if first in KEPT_FACES:
            outputs[path] = File(m, m.p.modules[first]).text
            continue
        outputs[path] = f'"""{rewrite_dotted(m, doc)}\n"""\n' if "\n" in doc else f'"""{rewrite_dotted(m, doc)}"""\n'
    for target in {t.rsplit(".", n)[0] for t in m.members for n in range(1, t.count("."))}:
        parts = target.split(".")
        path = Path("src", *parts, "__init__.py") if parts[0] == "twinshore" else Path(*parts, "__init__.py")
        if path not in outputs and target != "twinshore":
            m.say(f"NEW PACKAGE {target}")
            outputs[path] = f'"""{parts[-1]}."""\n'


def main(root: Path) -> None:
    m = Mover(root)
    outputs: dict[Path, str] = {}
    gone: set[Path] = set()
    merged(m, outputs, gone)
    packages_of(m, outputs, gone)
    # Everybody else.
    for name, mod in m.p.modules.items():
        if name.startswith("tests.") and name in m.map:
            where = Path(*m.map[name].split("."))
            where = where / "__init__.py" if mod.package else where.with_suffix(".py")
            assert where not in outputs, where
            outputs[where] = File(m, mod).text
            if where != mod.path:
                gone.add(mod.path)
        elif name not in m.map or name == "twinshore":
            outputs[mod.path] = File(m, mod).text
    for path in m.p.files:
        if path.suffix in (".md", ".toml", ".sh", ".yml", ".service", ".conf", ".yaml", ".java", ".cpp", ".hpp") or path.name in ("Makefile", "run"):
            text = (root / path).read_text()
            new = rewrite_dotted(m, text)
            if new != text:
                outputs[path] = new
    # What is no Python beside a module.
    for path in gone:
        if path not in outputs:
            (root / path).unlink()
    for path, text in outputs.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for line in m.said:
        print(line)
    print(len(outputs), "written", len(gone), "gone")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Nothing but names and places changed: every function, class and statement of a module, each global name replaced by
the qualified name that it resolves to, is there before and after. `prove.py BEFORE AFTER`."""

from __future__ import annotations

import ast
import collections
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from move import Mover
from project import Project


def meanings(p: Project, mod, new_of) -> dict[int, tuple]:
    """What each name of a module finally is, by its node."""
    r = mod.resolver
    parents_attr = {}
    for node in ast.walk(mod.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            parents_attr[id(node.value)] = node
    meaning: dict[int, tuple] = {}
    for node, text, scope in r.uses:
        if scope is None:
            continue
        what = p.binding(mod, scope, text)
        if what is None:
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global)):
            if scope.kind == "module" and what[1] is not None and not isinstance(node, ast.Global):
                meaning[id(node)] = ("def", new_of(*what))
            continue
        if what[1] is None and what[0].split(".")[0] in ("twinshore", "testkit", "tests") and what[0] in p.modules:
            attr = parents_attr.get(id(node))
            if attr is not None:
                full = p.final(what[0], attr.attr)
                meaning[id(attr)] = ("use", new_of(*full) if full[1] is not None else full)
            else:
                meaning[id(node)] = ("module", new_of(what[0], None))
            continue
        meaning[id(node)] = ("use", new_of(*what) if what[1] is not None else what)
    return meaning


def forms(p: Project, name: str, new_of) -> list[tuple[str, str]]:
    mod = p.modules[name]
    meaning = meanings(p, mod, new_of)

    def dump(node) -> str:
        if id(node) in meaning and isinstance(node, (ast.Name, ast.Attribute)):
            return f"<{meaning[id(node)][0]} {meaning[id(node)][1]}>"
        if isinstance(node, ast.AST):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                return ""
            parts = []
            for field, value in ast.iter_fields(node):
                if field == "name" and id(node) in meaning:
                    value = meaning[id(node)][1]
                elif field == "names" and isinstance(node, ast.Global):
                    value = sorted(str(new_of(mod.name, one)) for one in value)
                elif field in ("kind", "type_comment"):
                    continue
                parts.append(f"{field}={repr(value) if isinstance(value, tuple) else dump(value)}")
            return f"{type(node).__name__}({', '.join(parts)})"
        if isinstance(node, list):
            return "[" + ", ".join(x for x in map(dump, node) if x) + "]"
        if isinstance(node, str):
            return repr(m.strings(node)) if p is before else repr(node)
        return repr(node)

    found = []
    for one in mod.tree.body:
        if isinstance(one, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
            continue
        if isinstance(one, ast.If) and isinstance(one.test, ast.Name) and one.test.id == "TYPE_CHECKING":
            continue
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id == "__all__":
            continue
        found.append((dump(one), f"{mod.path}:{one.lineno}"))
    return found


from move import rewrite_dotted

before, after = Project(Path(sys.argv[1])), Project(Path(sys.argv[2]))
m = Mover(Path(sys.argv[1]))
m.strings = lambda text: rewrite_dotted(m, text)
known_new = set(after.modules)
assert "testkit.faults" in known_new


def new_of(module, name):
    if name is None:
        return (m.map.get(module, module), None)
    return (m.map.get(module, module), m.renames.get((module, name), name))


a, b = collections.Counter(), collections.Counter()
where: dict[str, str] = {}
skip = {(o, n) for o, n in m.dropped}
kept_of = {}
for o, n in m.dropped:
    kept_of[o, n] = next(x for x in m.members[m.map[o]] if n in before.modules[x].defined and (x, n) not in m.dropped)
real = new_of
for name in before.modules:
    if name in m.map and (not before.modules[name].package):
        dropped = {id(before.modules[o].defined[n]) for o, n in skip if o == name}
        lines = {f"{before.modules[o].path}:{before.modules[o].defined[n].lineno}" for o, n in skip if o == name}
        for form, at in forms(before, name, new_of):
            if at in lines:
                continue
            a[form] += 1
            where[form] = at
news = set(m.map.values())
for name in after.modules:
    if (name.startswith(("twinshore.", "testkit.")) or name in news) and not after.modules[name].package:
        for form, at in forms(after, name, lambda mod, n: (mod, n)):
            b[form] += 1
            where[form] = at
lost, made = a - b, b - a
print(sum(a.values()), "statements before,", sum(b.values()), "after;", sum(lost.values()), "lost,", sum(made.values()), "made")
for form in list(lost)[:15]:
    print("LOST", where[form], form[:300])
for form in list(made)[:15]:
    print("MADE", where[form], form[:300])

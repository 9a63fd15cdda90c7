"""Does the map hold: circles, imports that run up, clashes of names, sizes."""
import ast, sys, collections
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from project import Project
from project import whole_map

root = Path(sys.argv[1])
p = Project(root)
m = whole_map(p.modules)
LAYERS = "config kafka routing client state runtime replication groups proof switch proxy monitoring advisor lab cli".split()

def toplevel_imports(mod):
    def walk(body):
        for one in body:
            if isinstance(one, (ast.Import, ast.ImportFrom)):
                yield one
            elif isinstance(one, ast.If) and "TYPE_CHECKING" in ast.dump(one.test):
                continue
            elif isinstance(one, (ast.If, ast.Try)):
                for part in ("body", "orelse", "finalbody"):
                    yield from walk(getattr(one, part, []))
                for h in getattr(one, "handlers", []):
                    yield from walk(h.body)
    return walk(mod.tree.body)

def all_imports(mod):
    return (n for n in ast.walk(mod.tree) if isinstance(n, (ast.Import, ast.ImportFrom)))

def targets(mod, nodes):
    for n in nodes:
        if isinstance(n, ast.ImportFrom):
            for a in n.names:
                d, name = p.final(n.module, a.name)
                if d in m:
                    yield m[d], f"{d}.{name}", n.lineno
        else:
            for a in n.names:
                if a.name in m:
                    yield m[a.name], a.name, n.lineno

graph = collections.defaultdict(set)
why = {}
for name, mod in p.modules.items():
    if name not in m or mod.package: continue
    for t, what, line in targets(mod, toplevel_imports(mod)):
        if t != m[name]:
            graph[m[name]].add(t); why.setdefault((m[name], t), (name, what))
    for t, what, line in targets(mod, all_imports(mod)):
        a, b = m[name].split(".")[1:2], t.split(".")[1:2]
        if a and b and a != b and a[0] in LAYERS and b[0] in LAYERS and LAYERS.index(b[0]) > LAYERS.index(a[0]):
            print("UP", name, line, "->", what, "|", m[name], "->", t)
# Circles
sys.setrecursionlimit(10000)
index, low, stack, on, out = {}, {}, [], set(), []
def scc(v):
    index[v] = low[v] = len(index); stack.append(v); on.add(v)
    for w in graph[v]:
        if w not in index: scc(w); low[v] = min(low[v], low[w])
        elif w in on: low[v] = min(low[v], index[w])
    if low[v] == index[v]:
        c = []
        while True:
            w = stack.pop(); on.discard(w); c.append(w)
            if w == v: break
        if len(c) > 1: out.append(c)
for v in list(graph):
    if v not in index: scc(v)
for c in out:
    print("CIRCLE", c)
    for a in c:
        for b in graph[a]:
            if b in c: print("    ", a, "->", b, why[a, b])
# Clashes
by = collections.defaultdict(list)
for name in p.modules:
    if name in m and not p.modules[name].package: by[m[name]].append(name)
n = 0
for t, olds in sorted(by.items()):
    seen = collections.defaultdict(list)
    for o in olds:
        for d in p.modules[o].defined: seen[d].append(o)
    for d, os_ in seen.items():
        if len(os_) > 1:
            n += 1
            same = len({ast.dump(p.modules[o].defined[d]) for o in os_}) == 1
            print("CLASH", t, d, [o.split(".",1)[1] for o in os_], "same" if same else "")
print(n, "clashes;", len(by), "targets")
lines = {t: sum(p.modules[o].text.count("\n") for o in olds) for t, olds in by.items()}
print("over 900:", {t: l for t, l in lines.items() if l > 900})
print("under 60:", {t: l for t, l in lines.items() if l < 60})

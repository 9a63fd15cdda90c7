"""attrs.py ROOT list | apply SPEC.py [--dry]   type-aware renames of variables, parameters and attributes."""
import sys, os, re, pickle, io, tokenize, runpy, collections, bisect
from pathlib import Path
ROOT = Path(sys.argv[1]); os.chdir(ROOT)
from mypy import build, options as mo
from mypy.config_parser import parse_config_file
from mypy.find_sources import create_source_list
from mypy.nodes import *
from mypy.types import *
from mypy.patterns import *
import runpy
from mypy.nodes import TypeAlias as AliasNode

o = mo.Options()
parse_config_file(o, lambda: None, "pyproject.toml", sys.stdout, sys.stderr)
o.export_types = True; o.preserve_asts = True; o.incremental = False; o.cache_dir = os.devnull; o.fine_grained_incremental = False
o.python_executable = sys.executable
os.environ["MYPYPATH"] = "src:examples"
o.mypy_path = ["src", "examples"]
srcs = create_source_list(o.files or ["src", "tests", "bench", "scripts", "examples"], o)
print("sources", len(srcs), file=sys.stderr)
res = build.build(srcs, o)
print("errors", len(res.errors), res.errors[:5], file=sys.stderr)
types = res.types

def base(t):
    """Name of the class of a type, without None; containers by `list[X]`."""
    t = get_proper_type(t)
    if isinstance(t, UnionType):
        parts = {base(x) for x in t.items if not isinstance(get_proper_type(x), NoneType)}
        return parts.pop() if len(parts) == 1 else None
    if isinstance(t, Instance):
        n = t.type.fullname
        if n.startswith(("builtins.", "typing.", "collections.")) and t.args:
            return n.split(".")[-1] + "[" + ",".join(str(base(a)) for a in t.args) + "]"
        return n
    if isinstance(t, TypeVarType): return base(t.upper_bound)
    return None

SKIP = {"node", "info", "type", "names", "analyzed_type", "unanalyzed_type", "original_def", "alias_deps", "plugin_deps", "fullname", "ref_expr", "analyzed", "method_types", "method_type", "inferred_type", "imports", "variable", "initializer", "defn_"}
_attrs = {}
def attrs_of(c):
    if c not in _attrs:
        got = []
        for k in c.__mro__:
            got += list(getattr(k, "__mypyc_attrs__", ())) or [n for n, v in vars(k).items() if type(v).__name__ == "getset_descriptor"]
        _attrs[c] = [n for n in dict.fromkeys(got) if n not in SKIP]
    return _attrs[c]

class Walk:
    def __init__(self, path, modname):
        self.path = path; self.mod = modname; self.uses = []; self.seen = set()
        self.top = {}; self.names = collections.defaultdict(set); self.range = {}; self.kws = []; self.walrus = []
    def children(self, n):
        for name in attrs_of(type(n)):
            if name == "impl" and isinstance(n, OverloadedFuncDef): continue
            try: v = getattr(n, name)
            except AttributeError: continue
            if isinstance(v, Node) and not isinstance(v, (SymbolNode,)) or isinstance(v, (FuncDef, Decorator, OverloadedFuncDef)): yield v
            elif isinstance(v, (list, tuple)):
                for x in v:
                    if isinstance(x, Node): yield x
                    elif isinstance(x, (list, tuple)):
                        for y in x:
                            if isinstance(y, Node): yield y
    def visit(self, root):
        stack = [(root, None)]
        while stack:
            n, top = stack.pop()
            if id(n) in self.seen: continue
            self.seen.add(id(n))
            if isinstance(n, (FuncDef, LambdaExpr)):
                if top is None and isinstance(n, FuncDef):
                    top = n.line, n.end_line
                for a in n.arguments:
                    self.uses.append((a.line, a.column, a.variable.name, "local", a.variable, top))
                    if a.initializer is not None: stack.append((a.initializer, top))
                    self.names[top].add(a.variable.name)
            if isinstance(n, NameExpr):
                if isinstance(n.node, Var):
                    v = n.node
                    kind = "attr" if n.kind == MDEF else "local" if n.kind == LDEF else "global"
                    self.uses.append((n.line, n.column, n.name, kind, v, top))
                self.names[top].add(n.name)
            elif isinstance(n, MemberExpr):
                if n.expr in types:
                    for info in infos(types[n.expr]):
                        s = info.get(n.name)
                        if s is not None and isinstance(s.node, (Var, FuncDef, OverloadedFuncDef, Decorator)):
                            if n.end_column is not None: self.uses.append((n.end_line, n.end_column - len(n.name), n.name, "member", s.node, top))
                            break
            elif isinstance(n, ClassPattern):
                info = getattr(n.class_ref, "node", None)
                if isinstance(info, TypeInfo):
                    for key, val in zip(n.keyword_keys, n.keyword_values):
                        s = info.get(key)
                        if s is not None: self.uses.append((val.line, val.column, key, "keyword", s.node, top))
            elif isinstance(n, AssignmentExpr) and isinstance(n.target, NameExpr):
                self.walrus.append((n.line, n.column, n.target, top))
            elif isinstance(n, CallExpr) and any(n.arg_names):
                self.call(n, top)
            for x in self.children(n): stack.append((x, top))
    def call(self, n, top):
        c = n.callee; node = getattr(c, "node", None)
        if isinstance(c, MemberExpr) and node is None and c.expr in types:
            for info in infos(types[c.expr]):
                s = info.get(c.name)
                if s: node = s.node; break
        full = getattr(c, "fullname", "") or ""
        for name, a in zip(n.arg_names, n.args):
            if not name: continue
            target = None
            if full == "dataclasses.replace" or (isinstance(c, MemberExpr) and c.name == "_replace"):
                for info in infos(types.get(n.args[0] if full == "dataclasses.replace" else c.expr) or AnyType(TypeOfAny.unannotated)):
                    s = info.get(name); target = s.node if s else None; break
            elif full in ("functools.partial",) and n.args:
                target = param(getattr(n.args[0], "node", None), types.get(n.args[0]), name)
            else:
                target = param(node, types.get(c), name)
            if target is not None: self.uses.append((a.line, a.column, name, "keyword", target, top))

def param(node, t, name):
    if isinstance(node, Decorator): node = node.func
    if isinstance(node, OverloadedFuncDef): node = node.items[0]; node = node.func if isinstance(node, Decorator) else node
    t = get_proper_type(t) if t is not None else None
    if isinstance(node, AliasNode): 
        tt = get_proper_type(node.target); node = tt.type if isinstance(tt, Instance) else None
    info = node if isinstance(node, TypeInfo) else None
    if info is None and not isinstance(node, FuncDef):
        if isinstance(t, CallableType):
            if t.is_type_obj(): info = t.type_object()
            elif t.definition is not None: node = t.definition; node = node.func if isinstance(node, Decorator) else node
        elif isinstance(t, Instance):
            s = t.type.get("__call__"); node = s.node if s else None
    if info is not None:
        init = info.get("__init__")
        if init and isinstance(init.node, FuncDef) and init.node.line > 0 and "dataclass" not in info.metadata and init.node.info.fullname.startswith("twinshore"):
            node = init.node
            if not (init.node.info.metadata.get("dataclass")): 
                for a in node.arguments:
                    if a.variable.name == name: return a.variable
        s = info.get(name)
        return s.node if s else None
    if isinstance(node, FuncDef):
        for a in node.arguments:
            if a.variable.name == name: return a.variable
    return None

def infos(t):
    t = get_proper_type(t)
    if isinstance(t, UnionType):
        for x in t.items: yield from infos(x)
    elif isinstance(t, Instance): yield t.type
    elif isinstance(t, TypeVarType): yield from infos(t.upper_bound)
    elif isinstance(t, CallableType) and t.is_type_obj(): yield t.type_object()
    elif isinstance(t, TypeType): yield from infos(t.item)
    elif isinstance(t, TupleType): yield t.partial_fallback.type
    elif isinstance(t, LiteralType): yield t.fallback.type

walks = []
for name, f in res.files.items():
    p = Path(f.path)
    try: p = p.resolve().relative_to(ROOT)
    except ValueError: continue
    if not str(p).startswith(("src/", "tests/", "bench/", "scripts/", "examples/", "testkit/")): continue
    w = Walk(p, name); w.visit(f); walks.append(w)

def snake(c): return re.sub(r"(?<!^)(?=[A-Z])", "_", c).lower()
if sys.argv[2] == "list":
    count = collections.Counter(); where = collections.defaultdict(set)
    for w in walks:
        if not str(w.path).startswith("src/"): continue
        for line, col, name, kind, node, top in w.uses:
            if kind in ("local", "attr", "member") and isinstance(node, Var) and node.type is not None:
                b = base(node.type)
                if b and "twinshore." in b:
                    short = re.sub(r"[\w.]*\.(\w+)", r"\1", b)
                    k = ("attr" if kind != "local" else "local", name.lstrip("_"), short)
                    count[k] += 1; where[k].add(str(w.path)[14:])
    for (kind, name, cls), n in count.most_common():
        print(n, len(where[kind, name, cls]), kind, name, cls, min(where[kind,name,cls]), sep="\t")
    sys.exit()

spec = runpy.run_path(sys.argv[3]); NOUN, KEEP = spec["NOUN"], spec["KEEP"]; PAIRS = spec.get("PAIRS", {}); ONLY = spec.get("ONLY"); NOATTR = spec.get("NOATTR", set())
def plural(n):
    if n == "range_": return "ranges"
    return n if n.endswith("s") and not n.endswith("ss") else n[:-1] + "ies" if n.endswith("y") and n[-2] not in "aeiou" else n + "es" if n.endswith("ss") else n + "s"
def words(c):
    w = {x.lower() for x in re.findall(r"[A-Z]+[a-z]*|[a-z]+", c)}; return w | {x + "s" for x in w} | {x.rstrip("s") for x in w}
def wanted(name, t):
    b = base(t)
    if not b or "twinshore." not in b: return None
    short = re.sub(r"[\w.]*\.(\w+)", r"\1", b)
    lead = name[:len(name) - len(name.lstrip("_"))]; bare = name.lstrip("_")
    if (bare, short) in PAIRS: new = PAIRS[bare, short]; return lead + new if new else None
    m = re.fullmatch(r"(?:list|tuple|set|frozenset|Sequence|Iterable|Collection|Iterator|AbstractSet)\[(\w+)(?:,None)?\]", short)
    cls = m[1] if m else short
    if bare in KEEP: return None
    noun = NOUN.get(cls) or (snake(cls).split('_')[-1] if re.fullmatch(r"\w+", cls) and bare in spec["DEFAULT"] and not cls.startswith("_") and len(cls) < 24 else None)
    if noun is None or noun in spec["RESERVED"]: return None
    if set(bare.split("_")) & words(cls): return None
    if not SURE(bare): return None
    new = plural(noun) if m else noun
    return lead + new if new != bare else None
SURE = spec["SURE"]
allnames = {}
for w in walks:
    for top, names in w.names.items(): allnames[str(w.path), top] = names
decl = {}   # id(Var) -> (Var, kind, occurrences)
for w in walks:
    src = str(w.path).startswith("src/")
    for u in w.uses:
        line, col, name, kind, node, top = u
        if isinstance(node, Var): decl.setdefault(id(node), (node, []))[1].append((w, u))
classes = collections.defaultdict(set)
infos_all = [s.node for f in res.files.values() if f.fullname.startswith(("twinshore", "tests", "bench", "testkit")) for s in f.names.values() if isinstance(s.node, TypeInfo) and s.node.module_name == f.fullname]
skipped = collections.Counter(); plan = {}
taken = collections.defaultdict(dict)
for key, (node, occ) in sorted(decl.items(), key=lambda x: -len(x[1][1])):
    if node.type is None: continue
    is_attr = bool(node.info and node.info.fullname) and any(u[3] in ("member", "attr") for _, u in occ)
    new = spec["ATTRS"].get((node.info.name, node.name)) if is_attr else None
    new = new or wanted(node.name, node.type)
    if not new: continue
    if any(u[2] != node.name for _, u in occ): continue
    homes = {str(w.path) for w, u in occ if u[3] in ("local", "attr")}
    if not is_attr and not any(h.startswith(("src/", "testkit/")) for h in homes): continue
    if is_attr:
        if not node.info.fullname.startswith(("twinshore", "testkit")): continue
        if (node.info.name, node.name) in NOATTR: skipped["noattr", node.info.name, node.name, new] += len(occ); continue
        clash = [i for i in infos_all if node.info in i.mro and i.get(new)]
        if clash or taken[node.info.fullname].get(new, node.name) != node.name: skipped["attr-clash", node.info.name, node.name, new] += len(occ); continue
        taken[node.info.fullname][new] = node.name
        plan[key] = new
    else:
        tops = {(str(w.path), u[5]) for w, u in occ if u[3] == "local"}
        b = re.sub(r".*\.(\w+)$", r"\1", base(node.type) or "")
        long = snake(b) if re.fullmatch(r"\w+", b) and not b.startswith("_") and len(b) < 17 else None
        for cand in (new, {"partition": "tp"}.get(new) or (long if long != new else None), None):
            if cand is None and new == "partition" and long: cand = None
            if cand is None: skipped["clash", sorted(homes)[0], node.name, new] += len(occ); break
            if all(cand not in allnames[t] and cand not in allnames.get((t[0], None), ()) and taken[t].get(cand, node.name) == node.name for t in tops):
                for t in tops: taken[t][cand] = node.name
                plan[key] = cand; break
edits = collections.defaultdict(dict); unlocated = []
for key, new in plan.items():
    node, occ = decl[key]
    for w, (line, col, name, kind, _, top) in occ:
        text = texts = edits  # placeholder
        lines = LINES = spec.setdefault("_l", {}).setdefault(str(w.path), w.path.read_bytes().split(b"\n"))
        L = lines[line - 1]; old = name.encode()
        if kind == "keyword":
            back = L[:col]; ln = line
            m = re.search(rb"(?<![\w.])" + old + rb"\s*=\s*\(*\s*$", back)
            while m is None and ln > line - 3 and ln > 1:
                ln -= 1; back = lines[ln - 1].rstrip(); m = re.search(rb"(?<![\w.])" + old + rb"\s*=\s*[\(\[]*\s*$", back)
            if m: edits[str(w.path)][ln, m.start()] = (name, new)
            else: unlocated.append((str(w.path), line, name, new, kind, top))
        elif L[col:col + len(old)] == old and not re.match(rb"\w", L[col + len(old):]) and (col == 0 or not re.match(rb"\w", L[col - 1:col])):
            edits[str(w.path)][line, col] = (name, new)
        else: unlocated.append((str(w.path), line, name, new, kind, top))
rep = open("build-attributes.txt", "w")
for k, n in skipped.most_common(): print("SKIP", n, *k, file=rep)
for key, new in plan.items():
    node, occ = decl[key]; is_attr = any(u[3] in ("member", "attr") for _, u in occ)
    print("ATTR" if is_attr else "LOCAL", node.info.name if is_attr else "", node.name, new, len(occ), occ[0][0].path, file=rep)
for u in unlocated: print("UNLOCATED", *u, file=rep)
print("plan", len(plan), "edits", sum(map(len, edits.values())), "unlocated", len(unlocated), "skipped", len(skipped))
if "--dry" in sys.argv: sys.exit()
fix = collections.defaultdict(list)
for path, line, name, new, kind, top in unlocated: fix[path].append((line, name, new, kind, top))
for path in set(edits) | set(fix):
    lines = Path(path).read_bytes().split(b"\n")
    # f-strings first: by regex, in the function's range, lines keep their count
    for line, name, new, kind, top in dict.fromkeys(fix.get(path, [])):
        lo, hi = top if top else (line, line)
        pat = (rb"(\{[^{}]*?\.)" if kind == "member" else rb"((?:\{(?:[^{}]*?[^\w.{}])?)|(?:\bas )|(?:\bnonlocal )|(?:\bcase ))") + name.encode() + rb"\b(?!\s*=[^=])"
        for i in range(lo - 1, min(hi or lo, len(lines))):
            if any(e[0] == i + 1 for e in edits.get(path, {})) and kind != "member" and b"{" not in lines[i]: pass
            spots = sorted([c for (l, c) in edits.get(path, {}) if l == i + 1])
            out, pos, changed = b"", 0, False
            for m in re.finditer(pat, lines[i]):
                at = m.end(1)
                if at in spots: continue
                edits[path][i + 1, at] = (name, new)
    by = collections.defaultdict(list)
    for (l, c), (name, new) in edits[path].items(): by[l].append((c, name.encode(), new.encode()))
    for l, es in by.items():
        s = lines[l - 1]
        for c, name, new in sorted(es, reverse=True):
            if s[c:c + len(name)] == name: s = s[:c] + new + s[c + len(name):]
        lines[l - 1] = s
    Path(path).write_bytes(b"\n".join(lines))
# parameters in docstrings, in backticks
docs = collections.defaultdict(dict)
for key, new in plan.items():
    node, occ = decl[key]
    for w, u in occ:
        if u[3] == "local" and u[5]: docs[str(w.path), u[5]][node.name] = new
for (path, (lo, hi)), names in docs.items():
    lines = Path(path).read_text("utf-8").split("\n"); 
    for i in range(lo - 1, hi or lo):
        for name, new in names.items(): lines[i] = lines[i].replace(f"`{name}`", f"`{new}`")
    Path(path).write_text("\n".join(lines), "utf-8")

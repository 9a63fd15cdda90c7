"""words.py ROOT [--dry]: renames private words inside names, exact string keys and prose; lists collisions in a function."""
import ast, collections, io, re, sys, tokenize
from pathlib import Path
ROOT = Path(sys.argv[1]); DRY = "--dry" in sys.argv
NAMES = {"lane": "task", "lanes": "tasks", "tide": "run", "tides": "runs", "raft": "task_group", "rafts": "task_groups", "desk": "coordinator", "desks": "coordinators",
         "pump": "task", "pumps": "tasks", "seat": "session", "seats": "sessions", "seated": "session_of", "berth": "slot", "berths": "slots", "parcel": "batch", "parcels": "batches",
         "extent": "offset_run", "extents": "offset_runs"}
PROSE = {k: v.replace("_", " ") for k, v in NAMES.items()} | {"seated": "seated", "seat": "seat", "seats": "seats", "tide": "task run", "tides": "task runs", "extent": "offset run", "extents": "offset runs"}
DIRS = sys.argv[2].split(",") if len(sys.argv) > 2 and not sys.argv[2].startswith("-") else ["src/twinshore", "tests", "testkit", "bench"]
KEEP = re.compile(r"twinshore[-.]pump|pump_rig|^pump$(?!)")
def rename(name):
    if name in {"desk_words"}: return name
    parts = re.split(r"(_+)", name); out = []; upper = name.isupper()
    for p in parts:
        low = p.lower()
        if p and low in NAMES and (p == low or p == low.upper()): out.append(NAMES[low].upper() if p.isupper() else NAMES[low])
        else: out.append(p)
    return "".join(out)
def prose(text):
    def sub(m):
        w = m[0]; new = PROSE[w.lower()]
        return new.capitalize() if w[0].isupper() else new
    return re.sub(r"(?<![-\w./_`{'\"])(%s)(?![-\w/_`'\"(]|\.\w)" % "|".join(PROSE), sub, text, flags=re.I)
modules = {p.stem for p in ROOT.rglob("*.py")} if False else set()
for d in ("src", "tests", "testkit", "bench"):
    modules |= {p.stem for p in (ROOT / d).rglob("*.py")}
total = 0
for d in DIRS:
    for path in sorted((ROOT / d).rglob("*.py")):
        text = path.read_text()
        try: toks = list(tokenize.generate_tokens(io.StringIO(text).readline))
        except tokenize.TokenError: continue
        lines = text.split("\n"); edits = []
        # function ranges
        tree = ast.parse(text); funcs = []
        for n in ast.walk(tree):
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)): funcs.append((n.lineno, n.end_lineno, n.name))
        names_by_line = collections.defaultdict(set); prev = None
        for i, t in enumerate(toks):
            if t.type == tokenize.NAME:
                attr = i and toks[i-1].string == "."
                if not attr: names_by_line[t.start[0]].add(t.string)
        importing = set()
        for n in ast.walk(tree):
            if isinstance(n, (ast.Import, ast.ImportFrom)):
                importing |= set(range(n.lineno, n.end_lineno + 1))
        imported_from = {}
        for i, t in enumerate(toks):
            if t.type == tokenize.NAME:
                if t.start[0] in importing:
                    # module path parts stay; names imported are renamed unless they are modules
                    line = lines[t.start[0]-1]
                    j = line.find(" import ")
                    inpath = line.lstrip().startswith(("from", "import")) and (j < 0 or t.start[1] < j) 
                    if inpath or t.string in modules: continue
                if t.string in modules and i and toks[i-1].string != "." and t.string not in NAMES: continue
                new = rename(t.string)
                if new != t.string: edits.append((t.start, t.end, new, t.string, i and toks[i-1].string == "."))
            elif t.type == tokenize.STRING:
                body = t.string; m = re.match(r"([rbfuRBFU]*)('''|\"\"\"|'|\")", body)
                pre, q = m[1].lower(), m[2]; inner = body[m.end():-len(q)]
                new = inner
                if "f" in pre:
                    def inside(mm): return re.sub(r"\b[A-Za-z_]\w*\b", lambda x: rename(x[0]), mm[0])
                    new = re.sub(r"\{[^{}]*\}", inside, new)
                    pieces = re.split(r"(\{[^{}]*\})", new); new = "".join(p if k % 2 else prose(p) for k, p in enumerate(pieces))
                elif re.fullmatch(r"\w+", inner): new = inner if inner in modules else rename(inner)
                elif " " in inner:
                    new = prose(inner)
                    new = re.sub(r"`([a-z_.]+)`", lambda x: "`" + re.sub(r"\w+", lambda y: rename(y[0]), x[1]) + "`", new)
                if new != inner and not KEEP.search(inner): edits.append((t.start, t.end, body[:m.end()] + new + q, body, True))
            elif t.type == tokenize.COMMENT:
                new = prose(t.string)
                if new != t.string: edits.append((t.start, t.end, new, t.string, True))
        if not edits: continue
        total += len(edits)
        for (sl, sc), _, new, old, attr in edits:
            if attr or not old.isidentifier(): continue
            inner = [f for f in funcs if f[0] <= sl <= f[1]]
            if inner:
                lo, hi, fn = max(inner)
                if any(new in names_by_line[k] for k in range(lo, hi + 1)): print("CLASH", path, sl, fn, old, new)
        if DRY: continue
        for (sl, sc), (el, ec), new, old, _ in sorted(edits, reverse=True):
            if sl == el: lines[sl-1] = lines[sl-1][:sc] + new + lines[sl-1][ec:]
            else: lines[sl-1:el] = (lines[sl-1][:sc] + new + lines[el-1][ec:]).split("\n")
        path.write_text("\n".join(lines))
print("edits", total)

import subprocess,re
from pathlib import Path
out=subprocess.run([".venv/bin/ruff","check","-q","--select","E501","--output-format","concise"],capture_output=True,text=True).stdout
hits={}
for l in out.splitlines():
    m=re.match(r"(.*?):(\d+):\d+: E501",l)
    if m: hits.setdefault(m[1],[]).append(int(m[2]))
for f,ns in hits.items():
    p=Path(f); L=p.read_text().split("\n")
    for n in sorted(ns,reverse=True):
        s=L[n-1]; ind=re.match(r"\s*",s)[0]
        m=re.match(r'^(\s*)((?:return|yield|[\w.]+ =|[\w.]+:) )?f"',s)
        if not m: print("HAND",f,n,s.strip()[:100]); continue
        start=m.end(); depth=0; cut=None
        for i in range(start,min(len(s),112)):
            c=s[i]
            if c=="{" : depth+=1
            elif c=="}": depth-=1
            elif c==" " and depth==0 and i>start+5: cut=i
        if cut is None: print("HAND",f,n,s.strip()[:100]); continue
        a,b=s[:cut]+'"', 'f"'+s[cut:]
        if m[2] and not m[2].endswith(": "):
            pre=s[:m.start(2)+len(m[2])]
            L[n-1:n]=[pre+"(", ind+"    "+'f"'+s[start:cut]+'"', ind+"    "+b, ind+")"]
        else: L[n-1:n]=[a, ind+b]
    p.write_text("\n".join(L))

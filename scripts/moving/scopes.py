"""Which names of a file are its globals: a resolver over the syntax tree."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field


@dataclass
class Scope:
    node: ast.AST
    kind: str  # module, function, class, comprehension
    parent: "Scope | None"
    bound: set[str] = field(default_factory=set)
    globals_: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    # Imports bound in this scope: local name -> (module, name or None)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)


class Binder(ast.NodeVisitor):
    """What a scope binds, without what lies in scopes of its own."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def _bind(self, name: str) -> None:
        self.scope.bound.add(name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            self._bind(node.id)

    def visit_FunctionDef(self, node) -> None:
        self._bind(node.name)
        for one in node.decorator_list:
            self.visit(one)
        self._defaults(node.args)

    visit_AsyncFunctionDef = visit_FunctionDef

    def _defaults(self, args: ast.arguments) -> None:
        for one in [*args.defaults, *[d for d in args.kw_defaults if d]]:
            self.visit(one)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name)
        for one in [*node.decorator_list, *node.bases, *[k.value for k in node.keywords]]:
            self.visit(one)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._defaults(node.args)

    def _comp(self, node) -> None:
        # Only a walrus binds here, of what is within.
        for one in ast.walk(node):
            if isinstance(one, ast.NamedExpr):
                self._bind(one.target.id)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comp

    def visit_Import(self, node: ast.Import) -> None:
        for a in node.names:
            name = a.asname or a.name.split(".")[0]
            self._bind(name)
            self.scope.imports[name] = (a.name if a.asname else a.name.split(".")[0], None)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, ast.dump(node)
        for a in node.names:
            assert a.name != "*"
            self._bind(a.asname or a.name)
            self.scope.imports[a.asname or a.name] = (node.module, a.name)

    def visit_ExceptHandler(self, node) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    def visit_MatchStar(self, node) -> None:
        if node.name:
            self._bind(node.name)

    def visit_MatchMapping(self, node) -> None:
        if node.rest:
            self._bind(node.rest)
        self.generic_visit(node)

    def visit_Global(self, node) -> None:
        self.scope.globals_.update(node.names)

    def visit_Nonlocal(self, node) -> None:
        self.scope.nonlocals.update(node.names)


class Resolver(ast.NodeVisitor):
    """Calls `seen(node, name, scope)` for each use of a name: scope is where it is bound, None for a builtin."""

    def __init__(self, tree: ast.Module) -> None:
        self.uses: list[tuple[ast.AST, str, Scope | None]] = []
        self.of_node: dict[int, Scope] = {}
        self.module = Scope(tree, "module", None)
        self._enter_body(self.module, tree.body)
        self.scope = self.module
        for one in tree.body:
            self.visit(one)

    def _enter_body(self, scope: Scope, body) -> None:
        binder = Binder(scope)
        for one in body:
            binder.visit(one)
        scope.bound -= scope.globals_ | scope.nonlocals

    def find(self, name: str, scope: Scope | None = None) -> Scope | None:
        first = scope = scope or self.scope
        while scope is not None:
            if name in scope.globals_:
                return self.module
            if name in scope.bound and (scope.kind != "class" or scope is first):
                return scope
            scope = scope.parent
        return None

    def visit_Name(self, node: ast.Name) -> None:
        self.uses.append((node, node.id, self.find(node.id)))

    def visit_Global(self, node: ast.Global) -> None:
        for name in node.names:
            self.uses.append((node, name, self.module))

    def visit_Import(self, node) -> None:
        self.of_node[id(node)] = self.scope

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node) -> None:
        self.generic_visit(node)

    def _function(self, node) -> None:
        for one in getattr(node, "decorator_list", []):
            self.visit(one)
        args = node.args
        everyone = [*args.posonlyargs, *args.args, *args.kwonlyargs, *[a for a in (args.vararg, args.kwarg) if a]]
        for one in [*args.defaults, *[d for d in args.kw_defaults if d]]:
            self.visit(one)
        for one in everyone:
            if one.annotation:
                self.visit(one.annotation)
        if getattr(node, "returns", None):
            self.visit(node.returns)
        inner = Scope(node, "function", self.scope)
        body = node.body if isinstance(node.body, list) else [node.body]
        self._enter_body(inner, body)
        inner.bound |= {one.arg for one in everyone}
        self.of_node[id(node)] = inner
        self.scope, outer = inner, self.scope
        for one in body:
            self.visit(one)
        self.scope = outer

    def visit_FunctionDef(self, node) -> None:
        self.uses.append((node, node.name, self.find(node.name)))
        self._function(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node) -> None:
        self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.uses.append((node, node.name, self.find(node.name)))
        for one in [*node.decorator_list, *node.bases, *[k.value for k in node.keywords]]:
            self.visit(one)
        inner = Scope(node, "class", self.scope)
        self._enter_body(inner, node.body)
        self.of_node[id(node)] = inner
        self.scope, outer = inner, self.scope
        for one in node.body:
            self.visit(one)
        self.scope = outer

    def _comp(self, node) -> None:
        self.visit(node.generators[0].iter)
        inner = Scope(node, "comprehension", self.scope)
        binder = Binder(inner)
        for g in node.generators:
            binder.visit(g.target)
        # In a class a comprehension does not see the class's names, as a function.
        self.scope, outer = inner, self.scope
        for i, g in enumerate(node.generators):
            self.visit(g.target)
            if i:
                self.visit(g.iter)
            for one in g.ifs:
                self.visit(one)
        if isinstance(node, ast.DictComp):
            self.visit(node.key)
            self.visit(node.value)
        else:
            self.visit(node.elt)
        self.scope = outer

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comp

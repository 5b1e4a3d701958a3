"""Translates the part of Python in which the player is written to JavaScript, so that a page without Python makes the
same steps and sentences. What it does not know is an error that names the line. python.js has what Python has built in."""
import ast
import builtins
import json
from collections import deque

BUILT_IN = set("all any defaultdict dict enumerate filter float getattr groupby id int isinstance iter len list map max "
               "min next range round set setattr sorted str sum tuple zip AttributeError IndexError KeyError TypeError "
               "ValueError html json re".split())
RESERVED = {"new", "this", "function", "var", "let", "const", "default", "switch", "case", "delete", "typeof", "void"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "===", ast.IsNot: "!=="}
OPERATIONS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.FloorDiv: "floor_divide",
              ast.Mod: "remainder", ast.BitOr: "union", ast.BitAnd: "intersection"}


def javascript(modules, roots, given):
    """Modules {name: text}, in order, as JavaScript: what `roots`, as "join.Page", need. Instead of a definition that
    is `given`, there is what `given.NAME` has."""
    trees = {name: ast.parse(text) for name, text in modules.items()}
    defined = {name: set(all_names(tree)) for name, tree in trees.items()}
    wanted = reachable(trees, defined, roots, given)
    program = Program(trees, defined)
    return "".join(program.module(name, tree, wanted, given) for name, tree in trees.items())


def names_of(node):
    """The names that a statement of a module defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return []


def imported(tree):
    """{name: (module, name)} of what a module takes from others."""
    return {alias.name: (node.module, alias.name) for node in tree.body if isinstance(node, ast.ImportFrom)
            for alias in node.names}


def reachable(trees, defined, roots, given):
    found, queue = set(), deque(roots)
    while queue:
        place = queue.popleft()
        if place in found:
            continue
        found.add(place)
        module, name = place.split(".")
        if module not in trees or place in given:
            continue
        for node in statements_of(trees[module], name):
            for used in ast.walk(node):
                if isinstance(used, ast.Name):
                    source, other = imported(trees[module]).get(used.id, (module, used.id))
                    if other in all_names(trees.get(source)) or f"{source}.{other}" in given:
                        queue.append(f"{source}.{other}")
                elif isinstance(used, ast.Attribute) and isinstance(used.value, ast.Name) and used.value.id in trees:
                    if used.attr in defined[used.value.id]:
                        queue.append(f"{used.value.id}.{used.attr}")
    return found


def statements_of(tree, name):
    return [node for node in tree.body if name in names_of(node)]


def all_names(tree):
    return {name for node in tree.body for name in names_of(node)} if tree else set()


class Program:
    """What is known of all modules: classes, and the parameters of functions."""

    def __init__(self, trees, defined):
        self.modules = set(trees)
        self.classes, self.parameters, self.methods = set(), {}, set()
        for tree in trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.classes.add(node.name)
                    for method in node.body:
                        if isinstance(method, ast.FunctionDef):
                            name = node.name if method.name == "__init__" else method.name
                            self.parameters[name] = [a.arg for a in method.args.args[1:]]
                            self.methods.add(method.name)
                elif isinstance(node, ast.FunctionDef):
                    self.parameters.setdefault(node.name, [a.arg for a in node.args.args])

    def module(self, name, tree, wanted, given):
        parts, exported = [], []
        for used, (module, other) in imported(tree).items():
            if f"{module}.{other}" in wanted:
                source = "given" if f"{module}.{other}" in given else module
                parts.append(f"const {used} = {source}.{other};\n")
        for node in tree.body:
            names = [one for one in names_of(node) if f"{name}.{one}" in wanted]
            if not names:
                continue
            exported += names
            if f"{name}.{names[0]}" in given:
                parts.append(f"const {names[0]} = given.{names[0]};\n")
            elif isinstance(node, ast.Assign):
                translation = Translation(self)
                target = translation.target(node.targets[0])
                parts.append(f"const {target} = {translation.expression(node.value)};\n")
            else:
                parts.append(Translation(self).statement(node))
        return f"const {name} = (() => {{\n{''.join(parts)}return {{ {', '.join(exported)} }};\n}})();\n"


class Translation:
    """Translates one definition."""

    def __init__(self, program):
        self.program, self.bound = program, set()  # the methods of the class

    def refuse(self, node):
        raise ValueError(f"line {getattr(node, 'lineno', '?')}: expected Python that translate.py knows, "
                         f"given {ast.unparse(node)[:80]}")

    # ---- statements
    def block(self, body):
        return "".join(self.statement(node) for node in body)

    def statement(self, node):
        return getattr(self, "do_" + type(node).__name__.lower(), self.refuse)(node)

    def do_expr(self, node):
        value = node.value
        if isinstance(value, ast.Constant):
            return ""
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "super().__init__":
            return f"super({self.arguments(value)});\nconst self = this;\n"
        return self.expression(value) + ";\n"

    def do_pass(self, _):
        return ""

    def do_break(self, _):
        return "break;\n"

    def do_continue(self, _):
        return "continue;\n"

    def do_return(self, node):
        return f"return {self.expression(node.value)};\n" if node.value else "return null;\n"

    def do_raise(self, node):
        return f"throw {self.expression(node.exc)};\n"

    def do_if(self, node):
        other = f" else {{\n{self.block(node.orelse)}}}" if node.orelse else ""
        return f"if ({self.test(node.test)}) {{\n{self.block(node.body)}}}{other}\n"

    def do_while(self, node):
        return f"while ({self.test(node.test)}) {{\n{self.block(node.body)}}}\n"

    def do_for(self, node):
        if node.orelse:
            self.refuse(node)
        return f"for ({self.target(node.target)} of py.iter({self.expression(node.iter)})) {{\n{self.block(node.body)}}}\n"

    def do_try(self, node):
        if node.finalbody or node.orelse:
            self.refuse(node)
        text = f"try {{\n{self.block(node.body)}}} catch (caught) {{\n"
        for handler in node.handlers:
            kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            names = ", ".join(f"py.{ast.unparse(kind).split('.')[-1]}" for kind in kinds)
            name = f"const {handler.name} = caught;\n" if handler.name else ""
            text += f"if (py.is_one_of(caught, [{names}])) {{\n{name}{self.block(handler.body)}}} else "
        return text + "throw caught;\n}\n"

    def do_assign(self, node):
        value = self.expression(node.value)
        *others, last = node.targets
        if isinstance(last, ast.Subscript) and not others:
            return f"py.set_at({self.expression(last.value)}, {self.expression(last.slice)}, {value});\n"
        return f"{' = '.join(self.target(target) for target in node.targets)} = {value};\n"

    def do_augassign(self, node):
        target, value = node.target, self.expression(node.value)
        operation = "extend" if isinstance(node.op, ast.Add) else "update" if isinstance(node.op, ast.BitOr) else None
        operation = operation or OPERATIONS.get(type(node.op)) or self.refuse(node)
        result = f"py.{operation}({self.expression(target)}, {value})"
        if isinstance(target, ast.Subscript):
            return f"py.set_at({self.expression(target.value)}, {self.expression(target.slice)}, {result});\n"
        return f"{self.target(target)} = {result};\n"

    def do_functiondef(self, node, is_method=False):
        names = [argument.arg for argument in node.args.args][is_method:]
        defaults = [None] * (len(names) - len(node.args.defaults)) + node.args.defaults
        shadowed = {default.id for default in node.args.defaults if isinstance(default, ast.Name)} & set(names)
        outer = "".join(f"const outer_{name} = {plain(name)};\n" for name in sorted(shadowed))
        parameters = [plain(name) + (f" = {'outer_' if name in shadowed else ''}{self.expression(default)}"
                                     if default is not None else "") for name, default in zip(names, defaults)]
        if node.args.vararg:
            parameters.append(f"...{plain(node.args.vararg.arg)}")
        declared = sorted(assigned_in(node) - set(names))
        body = (f"let {', '.join(map(plain, declared))};\n" if declared else "") + self.block(node.body)
        is_generator = any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in inside(node))
        if not is_method:
            return f"{outer}function{'*' if is_generator else ''} {plain(node.name)}({', '.join(parameters)}) {{\n{body}}}\n"
        is_derived = "super(" in body
        body = body if is_derived else "const self = this;\n" + body
        name = "constructor" if node.name == "__init__" else node.name
        kind = "get " if node.decorator_list else "*" if is_generator else ""
        return f"{kind}{name}({', '.join(parameters)}) {{\n{body}}}\n"

    def do_classdef(self, node):
        self.bound = {one.name for one in node.body if isinstance(one, ast.FunctionDef) and not one.decorator_list}
        base = f" extends {self.expression(node.bases[0])}" if node.bases else ""
        methods = "".join(self.do_functiondef(method, True) for method in node.body if isinstance(method, ast.FunctionDef))
        return f"class {node.name}{base} {{\n{methods}}}\n"

    # ---- what is assigned to
    def target(self, node):
        if isinstance(node, (ast.Tuple, ast.List)):
            return f"[{', '.join(self.target(one) for one in node.elts)}]"
        if isinstance(node, ast.Starred):
            return f"...{self.target(node.value)}"
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.expression(node)
        return self.refuse(node)

    # ---- expressions
    def expression(self, node):
        return getattr(self, "of_" + type(node).__name__.lower(), self.refuse)(node)

    def list(self, nodes):
        return ", ".join(self.expression(node) for node in nodes)

    def test(self, node):
        """A condition: whether an expression is true."""
        if isinstance(node, ast.BoolOp):
            return f"({(' && ' if isinstance(node.op, ast.And) else ' || ').join(map(self.test, node.values))})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"!{self.test(node.operand)}"
        if isinstance(node, ast.Compare):
            return self.expression(node)
        return f"py.truth({self.expression(node)})"

    def of_boolop(self, node):
        name = "and" if isinstance(node.op, ast.And) else "or"
        text = self.expression(node.values[-1])
        for value in reversed(node.values[:-1]):
            text = f"py.{name}({self.expression(value)}, () => {in_brackets(text)})"
        return text

    def of_unaryop(self, node):
        if isinstance(node.op, ast.Not):
            return f"!{self.test(node.operand)}"
        return f"(-{self.expression(node.operand)})" if isinstance(node.op, ast.USub) else self.refuse(node)

    def of_binop(self, node):
        operation = OPERATIONS.get(type(node.op)) or self.refuse(node)
        return f"py.{operation}({self.expression(node.left)}, {self.expression(node.right)})"

    def of_compare(self, node):
        parts, left = [], node.left
        for operator, right in zip(node.ops, node.comparators):
            a, b = self.expression(left), self.expression(right)
            if isinstance(operator, (ast.In, ast.NotIn)):
                parts.append(f"{'!' if isinstance(operator, ast.NotIn) else ''}py.has({b}, {a})")
            elif isinstance(operator, (ast.Eq, ast.NotEq)):
                parts.append(f"{'!' if isinstance(operator, ast.NotEq) else ''}py.equal({a}, {b})")
            elif b == "null":
                parts.append(f"{a} {'==' if isinstance(operator, ast.Is) else '!='} null")
            else:
                parts.append(f"{a} {COMPARISONS[type(operator)]} {b}")
            left = right
        return f"({' && '.join(parts)})"

    def of_ifexp(self, node):
        return f"({self.test(node.test)} ? {self.expression(node.body)} : {self.expression(node.orelse)})"

    def of_namedexpr(self, node):
        return f"({plain(node.target.id)} = {self.expression(node.value)})"

    def of_constant(self, node):
        return "null" if node.value is None else json.dumps(node.value, ensure_ascii=False)

    def of_joinedstr(self, node):
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(json.dumps(part.value, ensure_ascii=False))
                continue
            spec = part.format_spec.values[0].value if part.format_spec else ""
            parts.append(f"py.format({self.expression(part.value)}, {json.dumps(spec)})")
        return f"({' + '.join(parts)})" if parts else '""'

    def of_name(self, node):
        is_stored = isinstance(node.ctx, ast.Store)
        if (node.id in BUILT_IN) == is_stored and (is_stored or hasattr(builtins, node.id)):
            self.refuse(node)
        return f"py.{node.id}" if node.id in BUILT_IN else plain(node.id)

    def of_attribute(self, node):
        value = self.expression(node.value)
        is_bound = isinstance(node.ctx, ast.Load) and value == "self" and node.attr in self.bound
        return f"{value}.{node.attr}.bind(self)" if is_bound else f"{value}.{node.attr}"

    def of_subscript(self, node):
        if isinstance(node.slice, ast.Slice):
            if node.slice.step:
                self.refuse(node)
            ends = [self.expression(end) if end else "null" for end in (node.slice.lower, node.slice.upper)]
            return f"py.slice({self.expression(node.value)}, {', '.join(ends)})"
        return f"py.at({self.expression(node.value)}, {self.expression(node.slice)})"

    def of_tuple(self, node):
        return f"[{self.list(node.elts)}]"

    of_list = of_tuple

    def of_set(self, node):
        return f"py.set([{self.list(node.elts)}])"

    def of_starred(self, node):
        return f"...py.iter({self.expression(node.value)})"

    def of_dict(self, node):
        pairs = [f"[{self.expression(key)}, {self.expression(value)}]" if key else
                 f"...py.items({self.expression(value)})" for key, value in zip(node.keys, node.values)]
        return f"py.dict([{', '.join(pairs)}])"

    def of_lambda(self, node):
        names = ", ".join(plain(argument.arg) for argument in node.args.args)
        return f"(({names}) => {in_brackets(self.expression(node.body))})"

    def of_yield(self, node):
        return f"yield {self.expression(node.value)}"

    def comprehension(self, node, value):
        text = f"made$.push({value});"
        for part in reversed(node.generators):
            for condition in part.ifs:
                text = f"if ({self.test(condition)}) {text}"
            text = f"for (const {self.target(part.target)} of py.iter({self.expression(part.iter)})) {text}"
        return f"(() => {{ const made$ = []; {text} return made$; }})()"

    def of_listcomp(self, node):
        return self.comprehension(node, self.expression(node.elt))

    of_generatorexp = of_listcomp

    def of_setcomp(self, node):
        return f"py.set({self.of_listcomp(node)})"

    def of_dictcomp(self, node):
        return f"py.dict({self.comprehension(node, f'[{self.expression(node.key)}, {self.expression(node.value)}]')})"

    # ---- calls
    def of_call(self, node):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in self.program.classes or name.endswith("Error"):
            return f"new {self.expression(function)}({self.arguments(node, name if name in self.program.classes else None)})"
        if isinstance(function, ast.Attribute):
            owner = self.expression(function.value)
            if owner == "self":
                return f"self.{name}({self.arguments(node, name)})"
            if owner in self.program.modules or owner in ("py.dict", "py.html", "py.json", "py.re", "py.str"):
                return f"{owner}.{name}({self.arguments(node)})"
            arguments = self.arguments(node, name if name in self.program.methods else None)
            return f"py.call({owner}, {json.dumps(name)}{', ' if arguments else ''}{arguments})"
        return f"{self.expression(function)}({self.arguments(node, None if name in BUILT_IN else name)})"

    def arguments(self, node, name=None):
        """By position; those with names go last, as an object, where a function is built in."""
        parts = [self.expression(argument) for argument in node.args]
        if node.keywords and name is None:
            named = ", ".join(f"{one.arg}: {self.expression(one.value)}" for one in node.keywords)
            return ", ".join([*parts, f"new py.Named({{ {named} }})"])
        for one in node.keywords:
            at = self.program.parameters[name].index(one.arg)
            parts += ["undefined"] * (at + 1 - len(parts))
            parts[at] = self.expression(one.value)
        return ", ".join(parts)


def plain(name):
    return f"{name}_" if name in RESERVED else name


def in_brackets(text):
    """The body of an arrow function."""
    return f"({text})" if text.startswith("{") else text


def inside(function):
    """The nodes of a function, without those of functions in it."""
    queue = list(function.body)
    while queue:
        node = queue.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            queue += ast.iter_child_nodes(node)


def assigned_in(function):
    """The variables of a function. Those of a comprehension are its own."""
    own = {id(name) for node in inside(function) if isinstance(node, ast.comprehension)
           for name in ast.walk(node.target)}
    return {node.id for node in inside(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            and id(node) not in own}

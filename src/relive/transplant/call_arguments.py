"""What a parameter of a function stands for: its default, or what the calls in the file pass."""

from __future__ import annotations

import ast

from relive.transplant.dependency_slice import Origin, is_literal
from relive.transplant.syntax import (
    DefiniteAssignment,
    Node,
    Tree,
    dedented_head,
    effects,
    parameter_names,
    parse_quietly,
)

_PLAIN = (
    ast.Name, ast.Attribute, ast.Constant, ast.Subscript, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp,
    ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop,
)  # fmt: skip  # expressions that call nothing


def default_value(tree: Tree, function: Node, parameter: str) -> str | None:
    """Returns the source of a parameter's default, if it is a literal."""
    match parse_quietly(f"{dedented_head(tree, function)} pass"):
        case [ast.FunctionDef() | ast.AsyncFunctionDef() as parsed]:
            arguments = parsed.args
        case _:
            return None
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = positional[len(positional) - len(arguments.defaults) :]
    pairs = [
        *zip(with_default, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    value = next((default for argument, default in pairs if argument.arg == parameter), None)
    return ast.unparse(value) if value is not None and is_literal(value) else None


def module_argument(names: DefiniteAssignment, definition: Origin | None, parameter: str) -> Origin | None:
    """Returns where the module defines what every call passes for a parameter, under the name of the parameter."""
    if definition is None or not definition.is_parameter:
        return None
    tree = names.tree
    waiting, seen = [definition.scope], {definition.scope}
    while waiting:
        function = waiting.pop()
        callers = _callers_passing(tree, function, parameter)
        for caller in callers or ():
            owner = names.owner(caller.scope, parameter)
            if owner is None or not (owner.parent is None or parameter in parameter_names(dedented_head(tree, owner))):
                return None
            if owner.parent is not None and owner not in seen:
                waiting.append(owner)
                seen.add(owner)
        if not callers:
            return None
    root = tree.root
    defining = [node for node in names.mentioning(root, parameter) if parameter in effects(tree, node).binds]
    return Origin(root, False, defining) if len(defining) == 1 else None


def passed_expression(names: DefiniteAssignment, definition: Origin | None, parameter: str) -> str | None:
    """Returns what every call in the file passes for a parameter, if the function itself can compute it.

    It can if the expression calls nothing and uses only variables of the module, the receiver of the method, and
    parameters for which the calls pass variables of the same name: `args.scale` for `scale`.
    """
    if definition is None or not definition.is_parameter:
        return None
    function = definition.scope
    calls = _calls_of(names.tree, function)
    found = {_expression_inside(names, function, call, parameter) for call in calls or ()}
    return found.pop() if len(found) == 1 else None


def _expression_inside(
    names: DefiniteAssignment, function: Node, site: tuple[Node, ast.Call], parameter: str
) -> str | None:
    caller, call = site
    parameters = _parameters_of_calls(names.tree, function)
    value = _unfold(names, caller, _passed(call, parameters, parameter))
    if value is None or (isinstance(value, ast.Name) and value.id == parameter):
        return None
    inside = list(ast.walk(value))
    is_same = all(
        _means_the_same(names, function, site, each.id, parameters) for each in inside if isinstance(each, ast.Name)
    )
    return ast.unparse(value) if is_same and all(isinstance(each, _PLAIN) for each in inside) else None


def _means_the_same(
    names: DefiniteAssignment, function: Node, site: tuple[Node, ast.Call], name: str, parameters: list[str]
) -> bool:
    """Whether a name stands for the same object where a function is called and inside the function."""
    caller, call = site
    if name in parameters:
        passed = _passed(call, parameters, name)
        return isinstance(passed, ast.Name) and passed.id == name
    if function.scope.kind == "class" and name == ast.unparse(call.func).split(".")[0]:
        return _positional_parameters(names.tree, function)[:1] == [name]
    outside, inside = names.owner(caller.scope, name), names.owner(function, name)
    return outside is inside and (outside is None or outside.parent is None)


def _unfold(names: DefiniteAssignment, caller: Node, value: ast.expr | None) -> ast.expr | None:
    """Returns what a local variable of the caller is assigned, if there is one assignment; else the expression."""
    if not isinstance(value, ast.Name) or caller.scope.parent is None:
        return value
    if names.owner(caller.scope, value.id) is not caller.scope:
        return value
    defining = [
        node for node in names.mentioning(caller.scope, value.id) if value.id in effects(names.tree, node).binds
    ]
    match parse_quietly(names.tree.head(defining[0])) if len(defining) == 1 and not defining[0].kind else None:
        case [ast.Assign(targets=[ast.Name()], value=assigned)]:
            return assigned
    return value


def _calls_of(tree: Tree, function: Node) -> list[tuple[Node, ast.Call]] | None:
    """Returns the calls of a function of the module, or of a method by its class; None if it is used otherwise."""
    is_method = function.scope.kind == "class" and function.scope.scope.parent is None
    if not is_method and function.scope.parent is not None:
        return None
    found = []
    for node in tree.nodes:
        if function.name not in node.words or node is function:
            continue
        parsed = parse_quietly(f"{dedented_head(tree, node)} pass" if node.kind else dedented_head(tree, node))
        if parsed is None:
            return None
        inside = [inner for statement in parsed for inner in ast.walk(statement)]
        calls = [
            inner for inner in inside if isinstance(inner, ast.Call) and _is_named(inner.func, function, is_method)
        ]
        if len(calls) != sum(_is_named(inner, function, is_method) for inner in inside):
            return None
        if is_method and calls and node.scope.scope is not function.scope:
            return None
        found += [(node, call) for call in calls]
    return found


def _is_named(node: ast.AST, function: Node, is_method: bool) -> bool:
    match node:
        case ast.Name(name):
            return name == function.name and not is_method
        case ast.Attribute(attr=name):
            return name == function.name and is_method
    return False


def _callers_passing(tree: Tree, function: Node, parameter: str) -> list[Node] | None:
    """Returns the statements that call a function of the module; None unless all pass a variable named like this."""
    parameters = _positional_parameters(tree, function)
    if function.scope.parent is not None or parameter not in parameters:
        return None
    calls = _calls_of(tree, function)
    passed = [_passed(call, parameters, parameter) for _, call in calls or ()]
    is_same = all(isinstance(each, ast.Name) and each.id == parameter for each in passed)
    return [node for node, _ in calls] if calls is not None and is_same else None


def _positional_parameters(tree: Tree, function: Node) -> list[str]:
    match parse_quietly(f"{dedented_head(tree, function)} pass"):
        case [ast.FunctionDef() | ast.AsyncFunctionDef() as parsed]:
            return [each.arg for each in (*parsed.args.posonlyargs, *parsed.args.args)]
    return []


def _parameters_of_calls(tree: Tree, function: Node) -> list[str]:
    """Returns the positional parameters that a call passes: without the receiver of a method."""
    return _positional_parameters(tree, function)[function.scope.kind == "class" :]


def _passed(call: ast.Call, parameters: list[str], parameter: str) -> ast.expr | None:
    """Returns what a call passes for a parameter."""
    position = parameters.index(parameter) if parameter in parameters else len(call.args)
    if any(isinstance(each, ast.Starred) for each in call.args[: position + 1]):
        return None
    by_keyword = [each.value for each in call.keywords if each.arg == parameter]
    return call.args[position] if position < len(call.args) else next(iter(by_keyword), None)

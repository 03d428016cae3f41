"""Accept only statements that read. All others are rejected before execution.

Statements are parsed by Spark's own parser. One is accepted if every operator in it, in its subqueries and in
the relations and functions that it names, is on a list of operators that only read.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyspark.errors import ParseException

from veen.pipeline.errors import LakeQueryError
from veen.pipeline.spark.failures import short

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An object of the JVM: py4j has no types.
JvmObject: TypeAlias = Any

# Operators that only read, by the parser's names.
_READING: Final = frozenset(
    {
        "Aggregate",
        "AsOfJoin",
        "BinBy",
        "Distinct",
        "Except",
        "Expand",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Intersect",
        "Join",
        "LateralJoin",
        "LimitAll",
        "LocalLimit",
        "LocalRelation",
        "NearestByJoin",
        "Offset",
        "OneRowRelation",
        "PipeOperator",
        "Pivot",
        "Project",
        "Range",
        "RelationTimeTravel",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "Transpose",
        "Union",
        "Unpivot",
        "UnresolvedBinBy",
        "UnresolvedHaving",
        "UnresolvedHint",
        "UnresolvedInlineTable",
        "UnresolvedQualify",
        "UnresolvedRelation",
        "UnresolvedSubqueryColumnAliases",
        "UnresolvedTVFAliases",
        "UnresolvedTableValuedFunction",
        "UnresolvedTranspose",
        "UnresolvedWith",
        "Window",
        "WithWindowDefinition",
    }
)
# Statements about tables that change nothing; they stand alone and name at most one table.
_SHOW: Final = "Show"
_LOOKING: Final = (_SHOW, "Describe")
_EXPLAIN: Final = "ExplainCommand"
# Functions that call arbitrary Java methods.
_CALLING: Final = frozenset({"java_method", "reflect", "try_reflect"})


class Question(NamedTuple):
    """The tables that an accepted statement needs."""

    # Lower-case names of the tables that it reads, and some that only look like tables.
    names: frozenset[str]
    # Whether it lists tables.
    is_overview: bool


def parse_question(spark: "SparkSession", text: str) -> Question:
    """Parse a statement; reject it unless it is known to only read."""
    parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - it is not to be had otherwise
    try:
        plan = parser.parsePlan(text)
    except ParseException as error:
        raise LakeQueryError(short(str(error))) from None
    name = _name(plan)
    if name == _EXPLAIN:
        plan = plan.logicalPlan()
    elif name.startswith(_LOOKING):
        return Question(frozenset(re.findall(r"\w+", text.lower())), name.startswith(_SHOW))
    names: set[str] = set()
    for node in _nodes(plan):
        if _name(node) not in _READING:
            raise _refused(_name(node))
        names.update(_named(node))
    if any(called in text.lower() for called in _CALLING):  # the search is slow
        for node in _nodes(plan):
            _require_known_calls(node)
    return Question(frozenset(names), is_overview=False)


def _named(node: JvmObject) -> Iterator[str]:
    """Yield the name of the table, or WITH definition, that an operator reads."""
    if _name(node) == "RelationTimeTravel":  # it does not list its table among its children
        node = node.relation()
    if _name(node) == "UnresolvedRelation":
        yield str(node.multipartIdentifier().last()).lower()


def _refused(name: str) -> LakeQueryError:
    return LakeQueryError(f"a lake is read with SQL, and changed by ingest and compact alone ({name})")


def _name(node: JvmObject) -> str:
    return str(node.getClass().getSimpleName()).removesuffix("$")


def _listed(found: JvmObject) -> Iterator[JvmObject]:
    for nth in range(found.size()):
        yield found.apply(nth)


def _nodes(plan: JvmObject) -> Iterator[JvmObject]:
    """Yield all operators, including those in WITH and in subqueries, which are not children."""
    yield plan
    for below in (plan.children(), plan.innerChildren()):
        for node in _listed(below):
            yield from _nodes(node)
    for found in _below(_windows(plan)):
        if _is_subquery(found):
            yield from _nodes(found.plan())


def _windows(node: JvmObject) -> list[JvmObject]:
    """Return the definitions of WINDOW, which are not among an operator's expressions."""
    if _name(node) != "WithWindowDefinition":
        return []
    return list(_listed(node.windowDefinitions().values().toSeq()))


def _below(expressions: list[JvmObject]) -> Iterator[JvmObject]:
    """Yield expressions and their descendants."""
    todo = list(expressions)
    while todo:
        found = todo.pop()
        yield found
        todo += _listed(found.children())


def _is_subquery(expression: JvmObject) -> bool:
    kind = expression.getClass()
    while kind is not None:
        if kind.getSimpleName() == "PlanExpression":
            return True
        kind = kind.getSuperclass()
    return False


def _require_known_calls(node: JvmObject) -> None:
    for found in _below([*_listed(node.expressions()), *_windows(node)]):
        if _name(found) == "UnresolvedFunction":
            called = str(found.nameParts().last()).lower()
            if called in _CALLING:
                raise _refused(called)

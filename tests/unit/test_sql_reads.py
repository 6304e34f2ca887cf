"""Which statements of ``sql.query`` may be called ``read``."""

from __future__ import annotations

import pytest

from shared.definition.checks.builtins import only_reads

READS = [
    "SELECT 1",
    "select * from t where s = 'DELETE'",
    " -- hi\n SELECT a;",
    "/* x */ (SELECT 1) UNION (SELECT 2)",
    "WITH a AS (SELECT 1) SELECT * FROM a",
    "SELECT * FROM t FOR UPDATE",
    "SELECT * FROM t FOR NO KEY UPDATE",
    "SELECT updated FROM t",
    'SELECT "delete" FROM t',
    "SELECT 'it''s; DELETE'",
    "SELECT :a, b->>'x'",
]
CHANGES = [
    "DELETE FROM t",
    "  delete from t",
    "WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a",
    "SELECT 1; DROP TABLE t",
    "SELECT * INTO x FROM t",
    "EXPLAIN ANALYZE DELETE FROM t",
    "UPDATE t SET a=1",
    "",
    "CALL f()",
    "-- SELECT\nDELETE FROM t",
    "SELECT 1;SELECT 2",
    "/*",
    "SELECT 'a\\'; DELETE FROM t; --'",
]


@pytest.mark.parametrize("statement", READS)
def test_what_only_reads_may_be_called_so(statement):
    assert only_reads(statement)


@pytest.mark.parametrize("statement", [*CHANGES, None, "SELECT 1 # it's\n; DELETE FROM t -- '", "/*! DELETE FROM t */"])
def test_what_may_change_something_may_not(statement):
    assert not only_reads(statement)

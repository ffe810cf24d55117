"""The example notebook, executed by a real kernel; what a prompt and a notebook show."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from sessions import caught_up, connect, create_source, events, name
from support import Cluster

import forebay
from forebay.runtime import collect as collecting
from forebay.runtime.results import HEAD_ROWS

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook" / "orders.ipynb"


def executed(cells: list[str] | None = None, *, allow_errors: bool = False) -> list[Any]:
    """The code cells of a notebook after a kernel has run them: the example's, or these."""
    import nbformat
    from nbclient import NotebookClient

    if cells is None:
        notebook = nbformat.read(NOTEBOOK, as_version=4)
    else:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    client = NotebookClient(notebook, timeout=240, kernel_name="python3", allow_errors=allow_errors)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the kernel's libraries, about each other
        client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any) -> str:
    """All that stands below a cell."""
    parts = []
    for output in cell.outputs:
        parts += [output.get("text", ""), *output.get("traceback", [])]
        parts += [str(text) for text in output.get("data", {}).values()]
    return "\n".join(parts)


@pytest.mark.timeout(600)
def test_the_example_notebook_runs_and_shows_tables() -> None:
    cells = executed()
    by_text = {cell.source.splitlines()[-1] if cell.source else "": shown(cell) for cell in cells}
    assert "view revenue created" in next(
        text for last, text in by_text.items() if "FROM orders GROUP BY" in last
    )
    selected = by_text["SELECT * FROM revenue ORDER BY total DESC"]
    assert "<table>" in selected
    assert "(3 rows)" in selected
    assert "Spark not started" in by_text["db"]
    assert "'NL': 22275.0" in by_text["{row.country: row.total for row in result}"]
    assert "<td>revenue</td>" in by_text["db.queries()"]
    assert "<td>orders</td>" in by_text["db.sources()"]


@pytest.mark.timeout(600)
def test_a_magic_cell_opens_a_session_shows_a_caret_and_no_traceback_and_takes_the_home_and_name(
    tmp_path: Path,
) -> None:
    cells = executed(
        [
            "%load_ext forebay",
            f"%%forebay --home {tmp_path / 'one'} --name first\nSHOW SOURCES",
            "%%forebay --name first\nSELEC 1",
            "first",
            f"%%forebay --name first --home {tmp_path / 'two'}\nSHOW SOURCES",
            "db = 3",
            "%%forebay\nSHOW SOURCES",
            "%%forebay --nam x\nSHOW SOURCES",
        ],
        allow_errors=True,
    )
    opened, wrong, session, elsewhere, _, taken, unknown = map(shown, cells[1:])
    assert "(0 rows)" in opened
    assert f"first = <forebay.Session {tmp_path / 'one'}" in opened
    assert "FB1001" in wrong
    assert "^" in wrong
    assert "Traceback" not in wrong
    assert cells[2].outputs[0].output_type == "error"
    assert "0 sources" in session
    assert "FB1204" in elsewhere
    assert "'db' is int here" in taken
    assert "%%forebay [--name db]" in unknown


def test_a_prompt_shows_the_first_rows_and_the_query_runs_once_for_them(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, view = name("s"), name("v")
    cluster.make_topic(1, name=source)
    cluster.produce(source, events(range(HEAD_ROWS + 10)))
    ran: list[Any] = []
    real = collecting.collect

    def counted(frame: Any) -> Any:
        table = real(frame)
        ran.append(table.num_rows)
        return table

    monkeypatch.setattr(collecting, "collect", counted)
    with connect(tmp_path) as db:
        assert "Spark not started" in repr(db)
        db.execute(create_source(cluster, source, source))
        assert source in repr(db.sources()[0])
        db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id, k FROM {source}")
        caught_up(db)
        many = db.sql(f"SELECT id, concat(k, '') AS `the key` FROM {view} ORDER BY id")
        text = repr(many)
        assert f"({HEAD_ROWS} rows shown of more)" in text
        assert len(text.splitlines()) == HEAD_ROWS + 3
        assert "<td>0</td>" in many._repr_html_()
        assert ran == [HEAD_ROWS + 1]
        rows = list(many)
        assert (len(rows), rows[0].id, rows[0]._1, rows[0]) == (HEAD_ROWS + 10, 0, "a", (0, "a"))  # type: ignore[attr-defined]
        assert ran == [HEAD_ROWS + 1, HEAD_ROWS + 10]

        few = db.sql(f"SELECT abs(id) AS id FROM {view} WHERE id < 3 ORDER BY id")
        assert repr(few).endswith("(3 rows)")
        assert [row.id for row in few] == [0, 1, 2]  # type: ignore[attr-defined]
        assert few.fetchall() == [(0,), (1,), (2,)]
        assert ran[2:] == [3]

        assert f"<query {view}: running, {HEAD_ROWS + 10} records" in repr(db.queries()[0])
        assert view in repr(db.queries())
        assert "<table>" in db.lag()._repr_html_()  # type: ignore[attr-defined]
        assert db.lag() == list(db.lag())
    assert repr(db) == f"<forebay.Session {tmp_path}, closed>"


def test_no_secret_is_in_what_a_prompt_shows(cluster: Cluster, tmp_path: Path) -> None:
    settings = {"kafka.sasl.password": "hunter2", "kafka.sasl.username": "me"}
    pool = forebay.Pool(
        bootstrap_servers=cluster.bootstrap_servers, topic="orders", group_id="prices", **settings
    )
    assert repr(pool) == (
        f"<forebay.Pool prices: orders at {cluster.bootstrap_servers}, group prices, 100 workers, "
        "order by unordered, new>"
    )
    store = forebay.KafkaBlackboardStore(cluster.bootstrap_servers, transactional_id="n1", **settings)
    assert repr(store) == (
        f"<forebay.KafkaBlackboardStore flock.artifacts at {cluster.bootstrap_servers}, node n1, not started>"
    )
    source = name("s")
    cluster.make_topic(1, name=source)
    statement = create_source(cluster, source, source)
    secret = statement.replace(") FORMAT JSON", ", 'kafka.sasl.password' = 'hunter2') FORMAT JSON")
    with connect(tmp_path) as db:
        db.execute(secret)
        for text in (repr(db), repr(db.sources()), repr(db.sources()[0]), db.sources()._repr_html_()):  # type: ignore[attr-defined]
            assert "hunter2" not in text
            assert "\n" not in repr(db.sources()[0])

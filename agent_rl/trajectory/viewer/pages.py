"""The viewer's HTML pages: runs, the table, a trajectory, its tokens, its group, and a comparison."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from markupsafe import Markup

from agent_rl.trajectory.trace import image_folder, read_trained_rows
from agent_rl.trajectory.trace.batches import mean_advantage
from agent_rl.trajectory.viewer.images import image_type, names_of
from agent_rl.trajectory.viewer.index import PAGE, TraceIndex
from agent_rl.trajectory.viewer.query import FACETS, NUMBERS, Query, read_int
from agent_rl.trajectory.viewer.rendering import environment, visible
from agent_rl.trajectory.viewer.report import read_run, run_charts, run_facts
from agent_rl.trajectory.viewer.rewards import components, read_breakdown, read_group
from agent_rl.trajectory.viewer.tokens import find_tokenizer, shaded

_OWN = ("full", "with")
"""Query parameters that do not belong to the table."""


class Pages:
    """The request handlers of the viewer's pages, each of which runs in a thread."""

    def __init__(self, index: TraceIndex) -> None:
        self.index = index
        self._lock = threading.Lock()
        self._values: tuple[int, dict[str, list[tuple[str, int]]]] = (-1, {})
        self._environment = environment()

    def runs(self, request: Request) -> Response:
        """Show the state and curves of the runs that wrote the files; if there is no run, show the table."""
        names = {source.path.parent: source.name for source in self.index.sources}
        here = [place for place in names if (place / "run.json").is_file() or (place / "metrics.jsonl").is_file()]
        if not here or request.query_params:
            return self.table(request)
        return self._page("run.html", runs=[self._run(folder, names[folder]) for folder in here])

    def table(self, request: Request) -> HTMLResponse:
        """Show the trajectories that match a query."""
        query, parameters = Query(request.query_params), dict(request.query_params)
        count, rows = self.index.count(query), self.index.find(query)
        total, values = self._choices()
        return self._page(
            "table.html", query=query, parameters=parameters, count=count, rows=rows, pages=max(1, -(-count // PAGE)),
            values=values, numbers=NUMBERS, facets=FACETS, total=total,
            skipped=self.index.skipped(), link=_linker(parameters), live=query.page == 0,
            filtered=query.filters(),
        )  # fmt: skip

    def trajectory(self, request: Request, number: int) -> HTMLResponse:
        """Show one trajectory as a conversation."""
        columns, record = self._record(number)
        group = read_group(self.index, columns)
        apart = {name: group.apart(record, name) for name in components(record)}
        advantage = next((each.advantage for each in group.samples if each.row["id"] == number), None)
        self._show_images(columns, record)
        return self._page(
            "trajectory.html", columns=columns, record=record, full="full" in request.query_params,
            group=group, breakdown=read_breakdown(record), apart=apart, advantage=advantage,
            **self._around(request, number),
        )  # fmt: skip

    def tokens(self, request: Request, number: int) -> HTMLResponse:
        """Show the tokens of one trajectory, shaded by their probability."""
        columns, record = self._record(number)
        name = str(record.get("id"))
        try:
            stored = self.index.tokens(columns, name)
        except ValueError as error:
            raise HTTPException(422, visible(error)) from error
        trained = read_trained_rows(self.index.path_of(columns), [name]).get(name, [])
        tokenizer = find_tokenizer(self.index.path_of(columns).parent)
        sequences = []
        for place, sequence in enumerate(stored["sequences"] if stored else ()):
            about = [
                {**asdict(row), "advantage": mean_advantage([row]), "by_token": isinstance(row.advantage, list)}
                for row in trained
                if row.sequence == place
            ]
            sequences.append({**shaded(sequence, tokenizer, "full" in request.query_params), "trained": about})
        return self._page(
            "tokens.html", columns=columns, sequences=sequences, decoded=tokenizer is not None,
            **self._around(request, number),
        )  # fmt: skip

    def group(self, request: Request, number: int) -> HTMLResponse:
        """Show the samples of one prompt side by side; `?with=` adds the samples of another step or file."""
        columns, _ = self._record(number)
        other = read_int(request.query_params.get("with"))
        chosen = [columns] if other is None else [columns, self._record(other)[0]]
        sides = []
        for side in chosen:
            group = read_group(self.index, side)
            for sample in group.samples:
                self._show_images(sample.row, sample.record)
            sides.append({"columns": side, "group": group})
        back = _back(request.query_params)
        up = f"/t/{number}?{back}" if other is None else f"/compare?{back}#row-c{number}"
        return self._page("group.html", sides=sides, full=False, up=up)

    def compare(self, request: Request) -> HTMLResponse:
        """Compare two files or two steps on their common prompts."""
        parameters, (_, choices) = dict(request.query_params), self._choices()
        files = [name for name, _ in choices["file"]]
        sides = [(parameters.get(f"{side}_file", ""), read_int(parameters.get(f"{side}_step"))) for side in "ab"]
        if not parameters and files:
            ends = self.index.ends(files[0]) if len(files) == 1 else (None, None)
            sides = [(files[0], ends[0]), (files[-1], ends[1])]
        rows, changes = self.index.compare(*sides) if files else ([], {})
        return self._page(
            "compare.html", files=files, steps=choices["step"], sides=sides, rows=rows, changes=changes,
            parameters=parameters, back=_back(parameters),
        )  # fmt: skip

    def _run(self, folder: Path, file: str) -> dict[str, Any]:
        """Return the template values of one run for the page of runs."""
        run = read_run(str(folder))
        link = f"/trajectories?{urlencode({'file': file})}&step="
        figures = [figure for figure in run_charts(run) if figure]
        return {
            "run": run, "file": file, "facts": run_facts(run), "count": self.index.count(Query({"file": file})),
            "charts": Markup("".join(figure.svg(link) for figure in figures)),
        }  # fmt: skip

    def image(self, number: int, place: int) -> Response:
        """Return an image of a trajectory by its position."""
        columns, record = self._record(number)
        names = [name for _, names in names_of(record) for name in names]
        try:
            file, kind = image_type(image_folder(self.index.path_of(columns)), names[place])
            return Response(file.read_bytes(), media_type=kind)
        except (IndexError, ValueError, OSError) as error:
            raise HTTPException(404, visible(error)) from error

    def raw(self, number: int) -> Response:
        """Return one trajectory as JSON."""
        return Response(json.dumps(self._record(number)[1]), media_type="application/json")

    def missing(self, request: Request, problem: str) -> Response:
        """Show that a page does not exist."""
        text = f"There is no page {request.url.path}" if problem == "Not Found" else problem
        return HTMLResponse(self._page("missing.html", problem=text).body, status_code=404)

    def count(self, request: Request) -> JSONResponse:
        """Return the current number of trajectories that match a query."""
        return JSONResponse({"count": self.index.count(Query(request.query_params))})

    def _record(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        match = self.index.get(number)
        if match is None:
            raise HTTPException(404, f"There is no trajectory {number}")
        return match

    def _around(self, request: Request, number: int) -> dict[str, Any]:
        """Return the trajectories before and after a trajectory in the table, and the query parameters of the table."""
        before, after = self.index.neighbours(number, Query(request.query_params))
        return {"before": before, "after": after, "back": _back(request.query_params)}

    def _show_images(self, columns: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        """Replace the names of images with their URLs, or with the reason why an image is not shown."""
        folder, number = image_folder(self.index.path_of(columns)), 0
        for holder, names in names_of(record):
            pictures = []
            for name in names:
                try:
                    image_type(folder, name)
                    pictures.append({"address": f"/t/{columns['id']}/image/{number}"})
                except (ValueError, OSError) as error:
                    pictures.append({"name": name, "problem": str(error)})
                number += 1
            holder["pictures"] = pictures

    def _choices(self) -> tuple[int, dict[str, list[tuple[str, int]]]]:
        """Return the number of trajectories and the values of all facets, which are cached until the number changes."""
        with self._lock:
            total = self.index.count()
            if self._values[0] != total:
                self._values = total, self.index.choices()
            return self._values

    def _page(self, name: str, **values: Any) -> HTMLResponse:
        html = self._environment.get_template(name).render(**values)
        return HTMLResponse(html.encode(errors="replace"))


def _back(parameters: Mapping[str, str]) -> str:
    """Return the query parameters that belong to the table."""
    return urlencode({key: value for key, value in parameters.items() if key not in _OWN})


def _linker(parameters: Mapping[str, str]) -> Callable[..., str]:
    """Return a function that returns this page's query string with some parameters changed."""

    def link(**changed: Any) -> str:
        values = {**parameters, **{key: str(value) for key, value in changed.items()}}
        return "?" + urlencode({key: value for key, value in values.items() if value})

    return link

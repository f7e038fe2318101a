// SPDX-License-Identifier: MIT
// Tables that sort, filter, widen and save, and the explorer.
"use strict";

// What a cell sorts by, and what is saved of it: its text, or a number, exact where the text is short; null for a dash.
function valueOf(cell) {
  const text = cell.dataset.value ?? cell.textContent.trim();
  return text === "-" ? null : cell.classList.contains("n") ? parseFloat(/-?\d[\d.]*/.exec(text)) : text;
}

// Empty cells come last in both directions.
function sortTable(table, column, direction) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row, at) => ({ row, at, key: valueOf(row.cells[column]) }));
  rows.sort((a, b) => {
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.at - b.at;
    const order = typeof a.key === "string" ? a.key.localeCompare(b.key, "en", { numeric: true }) : a.key - b.key;
    return direction * order || a.at - b.at;
  });
  body.append(...rows.map((each) => each.row));
}

// The rows and columns that are shown, as objects. A caution goes with its row.
function shownOf(table) {
  const heads = [...table.tHead.rows[0].cells].filter((head) => table.classList.contains("all") || !head.matches(".more"));
  return [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => Object.fromEntries([
    ...heads.map((head) => [head.textContent, valueOf(row.cells[head.cellIndex])]), ["caution", row.dataset.caution ?? ""]]));
}

function csvOf(rows) {
  const quoted = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  return [Object.keys(rows[0] ?? {}), ...rows.map(Object.values)]
    .map((row) => `${row.map((value) => quoted(String(value ?? ""))).join(",")}\n`).join("");
}

function save(table, kind) {
  const rows = shownOf(table), link = document.createElement("a");
  const text = kind === "csv" ? csvOf(rows) : JSON.stringify(rows, null, 1);
  link.href = URL.createObjectURL(new Blob([text], { type: kind === "csv" ? "text/csv" : "application/json" }));
  link.download = `embfuse-${table.id}.${kind}`;
  link.click();
}

// A form that scripts serve: it shows what fits now, and again whenever somebody changes it.
function serve(form, show) {
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
}

for (const form of document.querySelectorAll("form[data-table]")) {
  const table = document.getElementById(form.dataset.table), rows = [...table.tBodies[0].rows];
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sortTable(table, head.cellIndex, down ? -1 : 1);
    });
  }
  for (const button of form.querySelectorAll("button")) button.addEventListener("click", () => save(table, button.value));
  const all = form.querySelector("[type=checkbox]"), filter = form.querySelector("[type=search]");
  serve(form, () => {
    table.classList.toggle("all", !!all?.checked);
    if (!filter) return;
    // A row stays if it has all words.
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    form.querySelector("output").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  });
}

// The explorer: the points that equal the choice in its words, as far as they are near in its numbers, the nearest first.
const choice = document.getElementById("explore");
if (choice) {
  const FAR = 2; // units: a factor of two each, or 0.2 of alpha
  const table = document.getElementById("points"), rows = [...table.tBodies[0].rows];
  const column = Object.fromEntries([...table.tHead.rows[0].cells].map((head) => [head.textContent, head.cellIndex]));
  const text = (row, head) => row.cells[column[head]].textContent;
  const words = [...choice.querySelectorAll("select")], numbers = [...choice.querySelectorAll("input")];
  const unit = (field, value) => (field.name === "alpha" ? value / 0.2 : Math.log2(value));
  const measured = (field, row) => valueOf(row.cells[field.dataset.column]);
  const far = (row) => Math.hypot(...numbers.map((f) => unit(f, Number(f.value)) - unit(f, measured(f, row))));

  // What the nearest points say of the fastest kernel.
  function verdict(points) {
    if (!points.length) return "Too far to say: no measured point has these words.";
    const [{ row, units }] = points, near = points.filter((point) => point.units <= FAR);
    const where = numbers.map(({ name }) => (name === "alpha" ? `alpha ${text(row, name)}` : `${text(row, name)} ${name}`)).join(", ");
    if (!near.length) return `Too far to say: the nearest measured point is ${units.toFixed(1)} units away (${where}).`;
    const fastest = text(row, "fastest"), lead = text(row, "lead");
    const same = near.filter((point) => text(point.row, "fastest") === fastest).length;
    return `${fastest}, ${text(row, "ns/lookup")} ns/lookup at the nearest point, ${units.toFixed(1)} units away (${where}). `
      + (lead === "-" ? "No other kernel ran there." : lead.startsWith("≈") ? "The second cannot be told from it."
        : `The second takes ${lead} times as long.`)
      + ` It is the fastest at ${same} of ${near.length} points within ${FAR} units.`
      + (row.dataset.caution ? ` Caution: ${row.dataset.caution}.` : "");
  }

  function show() {
    if (!choice.checkValidity()) return;
    const points = [];
    for (const row of rows) {
      const units = far(row), equal = words.every((field) => text(row, field.name) === field.value);
      row.cells[column.distance].textContent = units.toFixed(2);
      row.hidden = !equal || units > FAR;
      if (equal) points.push({ row, units });
    }
    points.sort((a, b) => a.units - b.units);
    choice.querySelector("output").textContent = verdict(points);
    sortTable(table, column.distance, 1);
  }

  // The choice of a link such as #explorer?rule=adam&alpha=1.05.
  function follow() {
    const [place, query] = location.hash.split("?");
    if (place !== "#explorer" || !query) return;
    for (const [name, value] of new URLSearchParams(query)) {
      const field = choice.elements.namedItem(name), old = field?.value;
      if (!field) continue;
      field.value = value;
      if (field.value !== value) field.value = old; // no such option, or no number
    }
    show();
    choice.scrollIntoView();
  }

  for (const field of words) {
    for (const option of new Set(rows.map((row) => text(row, field.name)))) field.append(new Option(option));
  }
  for (const field of numbers) field.value = measured(field, rows[0]);
  serve(choice, show);
  choice.addEventListener("input", () => {
    if (choice.checkValidity()) history.replaceState(null, "", `#explorer?${new URLSearchParams(new FormData(choice))}`);
  });
  window.addEventListener("hashchange", follow);
  follow();
}

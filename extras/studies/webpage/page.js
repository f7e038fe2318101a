// SPDX-License-Identifier: MIT
// Tables that sort and filter, and the explorer.
"use strict";

// What a cell sorts by: the number at its beginning, or its text.
function sortKey(cell) {
  const text = cell.textContent.trim();
  if (!cell.classList.contains("n")) return text === "-" ? null : text;
  const found = /^[*≈]?(-?\d[\d.]*)([kMG]?)/.exec(text);
  return found ? parseFloat(found[1]) * { "": 1, k: 1e3, M: 1e6, G: 1e9 }[found[2]] : null;
}

// Empty cells come last in both directions.
function sortTable(table, column, direction) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row, at) => ({ row, at, key: sortKey(row.cells[column]) }));
  rows.sort((a, b) => {
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.at - b.at;
    const order = typeof a.key === "string" ? a.key.localeCompare(b.key, "en", { numeric: true }) : a.key - b.key;
    return direction * order || a.at - b.at;
  });
  body.append(...rows.map((each) => each.row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (head.dataset.fixed !== undefined) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sortTable(table, column, down ? -1 : 1);
    });
  });
}

// A form that scripts serve: it shows what fits now, and again whenever somebody changes it.
function serve(form, show) {
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
}

// A row stays if it has all words.
for (const input of document.querySelectorAll("input[data-filters]")) {
  const rows = [...document.getElementById(input.dataset.filters).tBodies[0].rows];
  serve(input.form, () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    input.form.querySelector("output").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  });
}

// The explorer: the points that equal the choice in its words, the nearest in its numbers first.
const choice = document.getElementById("explore");
if (choice) {
  const table = document.getElementById("points"), rows = [...table.tBodies[0].rows];
  const words = [...choice.querySelectorAll("select")], numbers = [...choice.querySelectorAll("input")];
  const at = (field, row) => row.cells[field.dataset.column];
  const unit = (field, value) => (field.name === "alpha" ? value / 0.2 : Math.log2(value));
  const far = (field, row) => unit(field, Number(field.value)) - unit(field, sortKey(at(field, row)));
  for (const field of words) {
    for (const text of new Set(rows.map((row) => at(field, row).textContent))) field.append(new Option(text));
  }
  for (const field of numbers) field.value = sortKey(at(field, rows[0]));
  serve(choice, () => {
    if (!choice.checkValidity()) return;
    for (const row of rows) {
      row.hidden = words.some((field) => at(field, row).textContent !== field.value);
      row.cells[0].textContent = Math.hypot(...numbers.map((field) => far(field, row))).toFixed(2);
    }
    sortTable(table, 0, 1);
  });
}

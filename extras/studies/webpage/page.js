// SPDX-License-Identifier: MIT
// Tables that sort and filter, and parts that open when a link leads to them.
"use strict";

// What a cell sorts by: its value if it has one, the number at its beginning, or its text.
function sortKey(cell) {
  const given = cell.dataset.value;
  if (given !== undefined) return given === "" ? null : Number(given);
  const text = cell.textContent.trim();
  const number = /^[*≈]?-?\d[\d.]*/.exec(text);
  if (!cell.classList.contains("n")) return text === "-" ? null : text;
  return number ? parseFloat(number[0].replace(/^[*≈]/, "")) : null;
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

// A row stays if it has all words.
for (const input of document.querySelectorAll("input[data-filters]")) {
  const form = input.form;
  const rows = [...document.getElementById(input.dataset.filters).tBodies[0].rows];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => texts.get(row).includes(word));
      left += !row.hidden;
    }
    form.querySelector("output").textContent = `${left} of ${rows.length} rows`;
  };
  input.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  apply();
}

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target && target.tagName === "DETAILS") target.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();

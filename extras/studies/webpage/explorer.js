// SPDX-License-Identifier: MIT
// The explorer: finds the measured points nearest to a choice. It never computes a time between two points. charts.js
// draws, if D3 is there.
"use strict";

(() => {
  const box = document.getElementById("explore");
  if (!box) return;
  const { points, colours } = JSON.parse(document.getElementById("explorer-data").textContent);
  const form = box.querySelector("form");
  const EQUAL = ["machine", "rule", "type", "threads"].filter((name) => form.elements[name]);
  // What one unit of distance is: a factor of two, or 0.2 of alpha.
  const log = { to: Math.log2, from: (v) => 2 ** v, unit: 1 };
  const AXES = { rows: log, dim: log, alpha: { to: (v) => v, from: (v) => v, unit: 0.2 }, lookups: log };
  const SHOWN = 6; // nearest points in the table

  const three = (value) => Number(value.toPrecision(3)).toString();
  const short = (value) => {
    const [unit, letter] = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]].find(([u]) => value >= u) || [1, ""];
    return three(value / unit) + letter;
  };
  const unique = (name) => [...new Set(points.map((p) => p[name]))].sort((a, b) => (a > b) - (a < b));

  // --- the choice
  for (const name of EQUAL) form.elements[name].append(...unique(name).map((v) => new Option(v, v)));
  for (const [name, axis] of Object.entries(AXES)) {
    const values = points.map((p) => axis.to(p[name]));
    const input = form.elements[name];
    input.min = Math.min(...values);
    input.max = Math.max(...values);
    input.step = "any";
    input.disabled = input.min === input.max;
  }
  function choose(point) {
    for (const name of EQUAL) form.elements[name].value = point[name];
    for (const [name, axis] of Object.entries(AXES)) form.elements[name].value = axis.to(point[name]);
  }
  const chosen = () => ({
    equal: Object.fromEntries(EQUAL.map((name) => [name, form.elements[name].value])),
    at: Object.fromEntries(Object.entries(AXES).map(([name, axis]) => [name, axis.from(Number(form.elements[name].value))])),
  });

  // --- the nearest points
  const offset = (name, point, at) => (AXES[name].to(point[name]) - AXES[name].to(at[name])) / AXES[name].unit;
  function distance(point, at) {
    const sum = Object.keys(AXES).reduce((total, name) => total + offset(name, point, at) ** 2, 0);
    return sum < 1e-12 ? 0 : Math.sqrt(sum);
  }
  function nearest({ equal, at }) {
    return points
      .filter((p) => EQUAL.every((name) => String(p[name]) === equal[name]))
      .map((point, order) => ({ point, order, distance: distance(point, at) }))
      .sort((a, b) => a.distance - b.distance || a.order - b.order);
  }

  // --- what is shown
  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const best = (point) => point.kernels.find((k) => k.best);

  function winner(point) {
    const first = best(point);
    const tied = point.kernels.filter((k) => k.tied && !k.best).map((k) => k.title);
    const line = box.querySelector(".winner");
    line.replaceChildren(element("strong", first.title), ` is the fastest: ${three(first.ns[1])} ns per lookup. `);
    if (tied.length) line.append(`The samples cannot tell it from ${tied.join(", ")}.`);
    else if (point.lead !== "-") line.append(`The second takes ${point.lead} times as long.`);
    else line.append("No other kernel was measured there.");
  }
  function way(point, at) {
    const parts = Object.keys(AXES).filter((name) => Math.abs(offset(name, point, at)) > 0.005).map((name) =>
      name === "alpha"
        ? `${three(Math.abs(point.alpha - at.alpha))} ${point.alpha > at.alpha ? "more" : "less"} alpha`
        : `${three(point[name] / at[name])} × the ${name === "dim" ? "floats" : name}`);
    return parts.length ? ` (it has ${parts.join(", ")})` : "";
  }
  function where(found, at) {
    const { point, distance: far } = found[0];
    const ties = found.filter((f) => f.distance - far < 1e-9).length;
    const line = box.querySelector(".where");
    line.replaceChildren(
      far === 0 ? "Measured exactly there: " : `Nearest measured point, ${three(far)} away${way(point, at)}: `,
      element("code", point.name), ` in ${point.file}${EQUAL.includes("machine") ? "" : `, ${point.machine}`}.`);
    if (ties > 1) line.append(` ${ties} points are equally near, with other tables, bags or batches; this is the first, and the table has them all.`);
  }
  function row({ point, distance: far }, first) {
    const line = element("tr", undefined, first ? "chosen" : "");
    const number = (value) => element("td", value === null ? "-" : value, "n");
    line.append(number(three(far)), element("td", point.name), number(short(point.rows)), number(three(point.dim)),
      number(three(point.alpha)), number(short(point.lookups)), number(point.bag === null ? null : three(point.bag)),
      number(point.tables === null ? null : three(point.tables)), element("td", best(point).title),
      number(three(best(point).ns[1])), number(point.lead), element("td", point.file));
    return line;
  }
  function nothing(equal) {
    const others = [...new Set(points.filter((p) => p.rule === equal.rule).map((p) =>
      EQUAL.filter((name) => name !== "rule").map((name) => `${p[name]}${name === "threads" ? " threads" : ""}`).join(" with ")))];
    box.querySelector(".winner").replaceChildren("Nothing like this was measured.");
    box.querySelector(".where").replaceChildren(`${equal.rule} was measured as: ${others.join("; ")}.`);
    box.querySelector("#nearest tbody").replaceChildren();
  }

  const charts = window.embfuseCharts && window.embfuseCharts(box, AXES, colours, (point) => { choose(point); show(); });
  function show() {
    const choice = chosen();
    for (const name of Object.keys(AXES)) {
      const value = choice.at[name];
      form.elements[name].parentNode.querySelector("output").textContent = name === "alpha" ? three(value) : short(Math.round(value));
    }
    const found = nearest(choice);
    if (charts) charts(choice, found);
    if (!found.length) return nothing(choice.equal);
    winner(found[0].point);
    where(found, choice.at);
    const ties = found.filter((f) => f.distance - found[0].distance < 1e-9).length;
    box.querySelector("#nearest tbody").replaceChildren(...found.slice(0, Math.max(SHOWN, ties)).map((f, i) => row(f, i === 0)));
  }
  box.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  choose(points[0]);
  box.hidden = false;
  show();
})();

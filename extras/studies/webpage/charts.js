// SPDX-License-Identifier: MIT
// The charts of the explorer, drawn by D3: a map of the measured points, and the times at the nearest one.
"use strict";

window.embfuseCharts = (box, axes, colours, pick) => {
  const WIDTH = 440, HEIGHT = 340, LEFT = 46, RIGHT = 14, TOP = 14, BOTTOM = 40, RADIUS = 5;
  const TITLES = { rows: "rows of all tables", dim: "floats per row", alpha: "alpha of the ids", lookups: "lookups of a batch" };
  const NAMES = 130; // width of the kernels' names
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const moving = (selection) => selection.transition().duration(calm ? 0 : 350);
  const best = (point) => point.kernels.find((k) => k.best);
  const paint = (kernel) => colours[kernel.name] || "currentColor";
  const map = d3.select("#map"), bars = d3.select("#bars");
  const across = box.querySelector("select[name=x]"), up = box.querySelector("select[name=y]");
  for (const select of [across, up]) for (const [name, title] of Object.entries(TITLES)) select.append(new Option(title, name));
  across.value = "alpha";
  up.value = "rows";

  const layers = Object.fromEntries(["x axis", "y axis", "way", "points", "marks"].map((name) => [name, map.append("g")]));
  const xTitle = map.append("text").attr("x", (LEFT + WIDTH - RIGHT) / 2).attr("y", HEIGHT - 6).attr("text-anchor", "middle");
  const yTitle = map.append("text").attr("x", 2).attr("y", 10);

  function scale(name, values, range) {
    const [low, high] = d3.extent(values);
    if (axes[name].unit === 1) return d3.scaleLog().base(10).domain([low / 1.3, high * 1.3]).range(range);
    const room = Math.max(0.05, (high - low) * 0.06);
    return d3.scaleLinear().domain([low - room, high + room]).range(range);
  }
  function drawAxes(x, y) {
    const ticks = (axis, name, s) => (name === "alpha" ? axis.ticks(6)
      : Math.log10(s.domain()[1] / s.domain()[0]) < 2.5 ? axis.ticks(4, "~s") : axis.tickValues(d3.ticks(...s.domain().map(Math.log10), 6)
        .filter(Number.isInteger).map((v) => 10 ** v)).tickFormat(d3.format("~s")));
    moving(layers["x axis"].attr("transform", `translate(0,${HEIGHT - BOTTOM})`)).call(ticks(d3.axisBottom(x).tickSizeOuter(0), across.value, x));
    moving(layers["y axis"].attr("transform", `translate(${LEFT},0)`)).call(ticks(d3.axisLeft(y).tickSizeOuter(0), up.value, y));
    xTitle.text(TITLES[across.value]);
    yTitle.text(TITLES[up.value]);
  }
  // Points at one place fan out a little, so that all of them are seen.
  function placed(found, x, y) {
    const taken = new Map();
    return found.slice().sort((a, b) => a.order - b.order).map((f) => {
      const at = [x(f.point[across.value]), y(f.point[up.value])], place = at.join();
      const n = taken.get(place) || 0;
      taken.set(place, n + 1);
      const angle = n * 2.399963, far = 3.2 * Math.sqrt(n);
      return { ...f, x: at[0] + far * Math.cos(angle), y: at[1] + far * Math.sin(angle) };
    });
  }
  function drawMap({ at }, found) {
    const values = (name) => [...found.map((f) => f.point[name]), at[name]];
    const x = scale(across.value, values(across.value), [LEFT, WIDTH - RIGHT]);
    const y = scale(up.value, values(up.value), [HEIGHT - BOTTOM, TOP + 8]);
    drawAxes(x, y);
    const all = placed(found, x, y), first = found.length && all.find((f) => f.order === found[0].order);
    const circles = layers.points.selectAll("circle").data(all, (f) => `${f.point.machine} ${f.point.file} ${f.point.rule} ${f.point.name}`)
      .join((enter) => enter.append("circle").attr("class", "point").attr("r", RADIUS).attr("cx", (f) => f.x).attr("cy", (f) => f.y)
        .call((made) => made.append("title")));
    circles.attr("fill", (f) => paint(best(f.point))).on("click", (f) => pick(f.point))
      .select("title").text((f) => `${f.point.name}: ${best(f.point).title}, ${best(f.point).ns[1]} ns`);
    moving(circles).attr("cx", (f) => f.x).attr("cy", (f) => f.y);

    const me = [x(at[across.value]), y(at[up.value])], s = 6;
    layers.marks.selectAll("*").remove();
    layers.way.selectAll("*").remove();
    layers.marks.append("path").attr("class", "choice").attr("d", `M${me[0] - s} ${me[1]}h${2 * s}M${me[0]} ${me[1] - s}v${2 * s}`);
    if (!first) return;
    layers.way.append("line").attr("class", "way").attr("x1", me[0]).attr("y1", me[1]).attr("x2", first.x).attr("y2", first.y);
    layers.marks.append("circle").attr("class", "ring").attr("r", RADIUS + 4).attr("cx", first.x).attr("cy", first.y);
    const right = first.x < WIDTH / 2;
    layers.marks.append("text").attr("class", "named").attr("text-anchor", right ? "start" : "end")
      .attr("x", first.x + (right ? 12 : -12)).attr("y", first.y - 8 < TOP + 10 ? first.y + 18 : first.y - 8).text(first.point.name);
  }

  function drawBars(found) {
    const kernels = found.length ? found[0].point.kernels : [];
    const step = Math.min(30, (HEIGHT - 10) / Math.max(1, kernels.length));
    const x = d3.scaleLinear().domain([0, d3.max(kernels, (k) => k.ns[2]) || 1]).range([0, WIDTH - NAMES - 60]);
    bars.attr("viewBox", `0 0 ${WIDTH} ${Math.max(step * kernels.length + 10, 60)}`);
    const rows = bars.selectAll("g").data(kernels, (k) => k.title).join((enter) => enter.append("g").call((row) => {
      row.append("text").attr("class", "title").attr("x", NAMES - 8).attr("y", step / 2).attr("dy", "0.35em").attr("text-anchor", "end");
      row.append("rect").attr("x", NAMES).attr("width", 0);
      row.append("line").attr("class", "whisker");
      row.append("text").attr("class", "time").attr("y", step / 2).attr("dy", "0.35em").attr("x", NAMES);
    }));
    rows.select(".title").text((k) => k.title).attr("y", step / 2).attr("font-weight", (k) => (k.best ? 700 : 400));
    rows.select(".time").text((k) => Number(k.ns[1].toPrecision(3))).attr("y", step / 2);
    rows.select("rect").attr("fill", paint).attr("y", step * 0.18).attr("height", step * 0.64);
    rows.select("line").attr("y1", step / 2).attr("y2", step / 2);
    const then = moving(rows).attr("transform", (k, i) => `translate(0,${step * i + 5})`);
    then.select("rect").attr("width", (k) => x(k.ns[1]));
    then.select("line").attr("x1", (k) => NAMES + x(k.ns[0])).attr("x2", (k) => NAMES + x(k.ns[2]));
    then.select(".time").attr("x", (k) => NAMES + x(k.ns[2]) + 6);
  }
  return (choice, found) => {
    drawMap(choice, found);
    drawBars(found);
  };
};

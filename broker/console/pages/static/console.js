// What scripts add to pages that work without them: live figures and rows, charts, times of the
// reader's zone, and a page that renews itself. No script here reads or writes HTML of messages.
"use strict";

(() => {
  const REFRESH_MS = 5000;
  const ROWS_MAX = 200;
  const POINTS_MAX = 900;
  const streams = new Map();
  const charts = new Map();

  // ── Times ──

  function localTimes(root) {
    for (const element of root.querySelectorAll("time[datetime]:not([title])")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      element.title = element.textContent;
      // This locale writes 2026-01-31 12:00:00, which nobody reads as another day.
      element.textContent = at.toLocaleString("sv-SE");
    }
  }

  // A time that is typed is of the zone in which times are shown, and says so from then on.
  const TYPED = /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?))?$/;

  function zoned(text) {
    const [typed, day, time] = TYPED.exec(text.trim()) || [];
    const at = new Date(`${day}T${time || "00:00"}`);
    if (!typed || Number.isNaN(at.getTime())) return text;
    const minutes = -at.getTimezoneOffset();
    const parts = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
    const zone = parts.map((part) => String(part).padStart(2, "0")).join(":");
    return `${day}T${time || "00:00"}${minutes < 0 ? "-" : "+"}${zone}`;
  }

  // Before htmx reads the form.
  document.addEventListener("submit", (event) => {
    for (const field of event.target.querySelectorAll("input[data-time]")) {
      field.value = zoned(field.value);
    }
  }, { capture: true });

  // ── Charts ──

  function colour(name) {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  }

  function drawChart(figure) {
    const series = JSON.parse(figure.dataset.series);
    const data = [series.times, ...series.lines.map((line) => line.values)];
    if (!window.uPlot || data[0].length < 2) return;
    const grid = { stroke: colour("--line"), width: 1 };
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: colour("--soft"), grid, ticks: { show: false }, font };
    const unit = series.unit || "";
    const options = {
      width: figure.clientWidth,
      height: figure.clientHeight,
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      scales: { y: { range: (_, low, high) => [Math.min(0, low), Math.max(high * 1.12, 1)] } },
      axes: [
        { ...axis, grid: { show: false }, size: 26, space: 80, incrs: STEPS_S,
          values: (_, ticks) => ticks.map((at) => clock(at, ticks[1] - ticks[0] < 60)) },
        { ...axis, size: 56, values: (_, ticks) => ticks.map((value) => short(value) + unit) },
      ],
      series: [{}, ...series.lines.map((line) => ({
        label: line.label, width: 1.6, points: { show: false },
        stroke: colour(`--series-${line.kind}`), dash: line.kind === "out" ? [5, 4] : [],
        spanGaps: false,
      }))],
    };
    figure.replaceChildren();
    const plot = new uPlot(options, data, figure);
    plot.over.setAttribute("aria-hidden", "true");
    charts.set(figure, { plot });
  }

  const STEPS_S = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 3600];
  const clock = (at, close) => new Date(at * 1000).toLocaleTimeString("sv-SE", {
    hour: "2-digit", minute: "2-digit", second: close ? "2-digit" : undefined,
  });
  const short = (value) => new Intl.NumberFormat("en", {
    notation: "compact", maximumFractionDigits: 1,
  }).format(value);

  function addPoint(figure, at, values) {
    const series = JSON.parse(figure.dataset.series);
    if (series.times.length && series.times.at(-1) >= at) return;
    series.times = [...series.times, at].slice(-POINTS_MAX);
    series.lines.forEach((line, i) => { line.values = [...line.values, values[i]].slice(-POINTS_MAX); });
    figure.dataset.series = JSON.stringify(series);
    const chart = charts.get(figure);
    if (chart) chart.plot.setData([series.times, ...series.lines.map((line) => line.values)]);
    else drawChart(figure);
  }

  // ── Streams ──

  function openStream(element) {
    const source = new EventSource(element.dataset.events);
    streams.set(element, source);
    source.addEventListener("figures", (event) => showFigures(JSON.parse(event.data)));
    source.addEventListener("row", (event) => addRow(element, event.data));
    source.addEventListener("end", (event) => {
      source.close();
      say(element, event.data);
    });
    source.onerror = () => {
      say(element, element.dataset.lost);
      // A browser opens a stream that was refused no more. The page leads to the login, or to a
      // place among the live pages that is free by then.
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(() => { if (element.isConnected) location.reload(); }, REFRESH_MS);
    };
    source.onopen = () => say(element, element.dataset.open);
  }

  function say(element, text) {
    const state = element.querySelector("[data-state]");
    if (state && text) state.textContent = text;
  }

  function showFigures(figures) {
    for (const [name, text] of Object.entries(figures.texts || {})) {
      for (const element of document.querySelectorAll(`[data-figure="${CSS.escape(name)}"]`)) {
        const known = text !== null;
        element.textContent = known ? text : element.dataset.unknown;
        element.parentElement.classList.toggle("unknown", !known);
      }
    }
    for (const [name, values] of Object.entries(figures.points || {})) {
      const figure = document.querySelector(`[data-chart="${CSS.escape(name)}"]`);
      if (figure) addPoint(figure, figures.at, values);
    }
  }

  // A row is HTML that the server made by its template, with every value escaped.
  function addRow(element, html) {
    const body = element.querySelector("tbody");
    const template = document.createElement("template");
    template.innerHTML = html;
    for (const row of template.content.querySelectorAll("tr")) {
      row.classList.add("fresh");
      body.prepend(row);
    }
    localTimes(body);
    while (body.rows.length > ROWS_MAX) body.deleteRow(-1);
    for (const empty of element.querySelectorAll("[data-until-rows]")) empty.hidden = true;
  }

  // ── A page that renews itself ──

  function busy() {
    const active = document.activeElement;
    const typing = active && active.matches("input, select, textarea");
    const chosen = document.querySelector("main :is(input:checked:not([data-kept]), details[open])");
    return document.hidden || typing || chosen || !getSelection().isCollapsed;
  }

  function refresh() {
    if (!window.htmx || !document.querySelector("[data-refresh]") || busy()) return;
    htmx.ajax("GET", location.pathname + location.search, {
      target: "#live", select: "#live", swap: "outerMorph",
    }).catch(() => {});
  }

  // ── Choosing all rows ──

  document.addEventListener("change", (event) => {
    const all = event.target.closest("input[data-all]");
    if (!all) return;
    for (const box of all.form.querySelectorAll(`input[name="${CSS.escape(all.dataset.all)}"]`)) {
      box.checked = all.checked;
    }
  });

  // ── Life of a page ──

  function start() {
    for (const [element, source] of streams) {
      if (!element.isConnected) { source.close(); streams.delete(element); }
    }
    for (const [figure, chart] of charts) {
      if (!figure.isConnected) { chart.plot.destroy(); charts.delete(figure); }
    }
    localTimes(document);
    for (const figure of document.querySelectorAll("[data-series]")) {
      if (!charts.has(figure)) drawChart(figure);
    }
    for (const element of document.querySelectorAll("[data-events]")) {
      if (!streams.has(element)) openStream(element);
    }
  }

  function redraw() {
    for (const [figure, chart] of charts) {
      chart.plot.destroy();
      charts.delete(figure);
    }
    start();
  }

  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 150);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.addEventListener("htmx:after:swap", start);
  addEventListener("pagehide", () => streams.forEach((source) => source.close()));
  setInterval(refresh, REFRESH_MS);
  start();
})();

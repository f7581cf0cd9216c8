// The page /singa: asks the scheduler once a second what its jobs do, and shows it.
// It only makes elements and text nodes, never markup from strings: names of jobs and paths are of other people.
"use strict";

const EVERY_MS = 1000;
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

/* ---- elements ---- */

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== "") element.append(child);
  }
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/* Shows what `make` returns in a place, if the data is new: what somebody has selected there stays. */
function show(place, data, make) {
  const text = JSON.stringify(data);
  if (place.shownData === text) return;
  place.shownData = text;
  place.replaceChildren(...make().filter((each) => each !== null));
}

/* ---- numbers ---- */

const integer = (n) => Math.round(n).toLocaleString("en");
function number(x) {
  if (x === null || x === undefined) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1000) return integer(x);
  if (size < 1e-4) return x.toExponential(2);
  return String(Number(x.toPrecision(4)));
}
// labels of an axis have little room
const brief = (x) => Math.abs(x) < 1e5 ? number(x) : x.toLocaleString("en", { notation: "compact" });
function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i += 1; }
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}
function duration(seconds) {
  seconds = Math.max(0, Math.round(seconds));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const clock = (time) => new Date(1000 * time).toLocaleTimeString([], { hour12: false });
/* Returns the time of day, and the date if that is not today's. */
function moment(time) {
  const then = new Date(1000 * time);
  const isToday = then.toDateString() === new Date().toDateString();
  return isToday ? clock(time) : `${then.toLocaleDateString([], { day: "numeric", month: "short" })}, ${clock(time)}`;
}
const words = (name) => ({ samples_per_s: "samples per second" })[name] || name;
const plural = (n, word, words = `${word}s`) => `${n} ${n === 1 ? word : words}`;
/* Returns the word for the colour of a job: a state, but a job that somebody has killed is no error. */
const kindOfEnd = (job) => (job.standing.startsWith("killed") ? "killed" : job.state);
const stepOf = (job) => (job.step < 0 ? "–" : integer(job.step));

/* ---- the list ---- */

const rows = new Map();
const KINDS = [["Running", (j) => j.ended === null && j.state !== "queued"],
  ["Queued", (j) => j.state === "queued"], ["Ended", (j) => j.ended !== null]];

function rowOf(job) {
  let row = rows.get(job.id);
  if (!row) {
    row = h("a", { class: "row" }, h("span"), h("span", { class: "name" }), h("span", { class: "share num" }),
      h("span", { class: "sub num" }), h("span", { class: "sub num" }));
    rows.set(job.id, row);
  }
  const [dot, name, share, sub, more] = row.children;
  row.setAttribute("href", `#${encodeURIComponent(job.id)}`);
  row.title = job.id;
  row.className = job.id === chosen ? "row chosen" : "row";
  dot.className = `dot ${kindOfEnd(job)}`;
  const facts = [job.standing];
  if (job.state !== "queued") facts.push(`step ${stepOf(job)}`);
  if (job.loss !== null) facts.push(`loss ${number(job.loss)}`);
  const percent = job.train_steps && job.ended === null && job.step >= 0 ? `${Math.floor((100 * job.step) / job.train_steps)} %` : "";
  const rest = job.ended !== null ? `${moment(job.began)} · ${duration(job.ended - job.began)} · …${job.id.slice(-4)}`
    : job.state === "queued" ? job.reason : "";
  more.className = job.state === "queued" ? "sub line1" : "sub num";
  more.title = job.state === "queued" ? job.reason : "";
  for (const [place, text] of [[name, job.name], [share, percent], [sub, facts.join(" · ")], [more, rest]]) {
    if (place.textContent !== text) place.textContent = text;
  }
  return row;
}

function showList(overview) {
  const wanted = [];
  for (const [kind, fits] of KINDS) {
    const jobs = overview.jobs.filter(fits);
    if (!jobs.length) continue;
    const n = { Ended: overview.n_ended, Queued: overview.n_queued }[kind] || jobs.length;
    wanted.push(`${kind} (${n})`, ...jobs.map(rowOf));
  }
  const known = new Set(overview.jobs.map((job) => job.id));
  for (const id of rows.keys()) if (!known.has(id)) rows.delete(id);
  const list = $("jobs");
  const order = wanted.map((each) => (typeof each === "string" ? each : each.title)).join("\n");
  if (list.order === order) return;
  list.order = order;
  list.replaceChildren(...wanted.map((each) => (typeof each === "string" ? h("p", { class: "kind" }, each) : each)));
}

/* ---- curves ---- */

const PHASES = ["train", "validation", "test"];
const HEIGHT = 150;
const LABEL = 10;  // height of the number of a worker group
const MARGIN = { left: 44, right: 10, top: 10, bottom: 22 };

function ticks(low, high, n) {
  const rough = (high - low) / n || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((each) => each >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(i * step || 0);
  return found;
}

function scales(curves, width) {
  const steps = curves.flatMap((curve) => curve.steps);
  const values = curves.flatMap((curve) => curve.values).filter((value) => value !== null);
  const last = Math.max(1, ...steps);
  let [low, high] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  if (low >= 0 && low < 0.35 * high) low = 0;
  if (high <= 1 && high > 0.8) high = 1;
  if (high === low) { high += Math.abs(high) / 10 || 1; low -= low > 0 ? Math.min(low, high / 10) : 0; }
  const inner = width - MARGIN.left - MARGIN.right;
  const x = (step) => MARGIN.left + (inner * step) / last;
  const y = (value) => HEIGHT - MARGIN.bottom - ((HEIGHT - MARGIN.top - MARGIN.bottom) * (value - low)) / (high - low);
  return { x, y, low, high, last, step: (at) => (last * (at - MARGIN.left)) / inner };
}

function pathOf(curve, { x, y }) {
  let path = "";
  let pen = "M";
  curve.values.forEach((value, i) => {
    if (value === null) { pen = "M"; return; }
    path += `${pen}${x(curve.steps[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

/* Returns the index of the point nearest to a step, or of the last point if the step is null; -1 if there is none. */
function nearest(curve, step) {
  let best = -1;
  curve.steps.forEach((each, i) => {
    if (curve.values[i] === null) return;
    if (step === null || best < 0 || Math.abs(each - step) < Math.abs(curve.steps[best] - step)) best = i;
  });
  return best;
}

class Chart {
  constructor(metric) {
    this.metric = metric;
    this.title = h("h3");
    this.svg = s("svg", { height: HEIGHT, role: "img", "aria-label": `${words(metric)} by step` });
    this.element = h("section", { class: "panel chart" }, this.title, this.svg);
    this.at = null;
    this.svg.addEventListener("pointermove", (event) => {
      this.at = event.clientX - this.svg.getBoundingClientRect().left;
      this.draw();
    });
    this.svg.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
  }

  update(curves) {
    const text = JSON.stringify(curves) + this.svg.clientWidth;
    if (this.text === text) return;
    this.text = text;
    // the first group is drawn last, on top
    this.curves = [...curves].sort((a, b) => b.group - a.group || PHASES.indexOf(a.phase) - PHASES.indexOf(b.phase));
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth || 300;
    const scale = scales(this.curves, width);
    const { x, y } = scale;
    const parts = [];
    for (const tick of ticks(scale.low, scale.high, 4)) {
      parts.push(s("line", { class: "gridline", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick) }),
        s("text", { x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end" }, brief(tick)));
    }
    for (const tick of ticks(0, scale.last, Math.max(2, Math.floor(width / 80)))) {
      parts.push(s("text", { x: x(tick), y: HEIGHT - 5, "text-anchor": "middle" }, integer(tick)));
    }
    const at = this.at === null ? null : scale.step(this.at);
    const hasGroups = this.curves.some((curve) => curve.group);
    const labels = [];
    for (const curve of this.curves) {
      const kind = `${curve.phase}${curve.group ? " other" : ""}`;
      const name = hasGroups ? `${curve.phase}, worker group ${curve.group}` : curve.phase;
      parts.push(s("path", { class: `line ${kind}`, d: pathOf(curve, scale) }, s("title", {}, name)));
      const last = curve.values.findLastIndex((value) => value !== null);
      if (hasGroups && last >= 0) labels.push({ x: x(curve.steps[last]), y: y(curve.values[last]), group: curve.group });
      const i = nearest(curve, at);
      if (i >= 0 && !curve.group) parts.push(s("circle", { class: `mark ${kind}`, cx: x(curve.steps[i]), cy: y(curve.values[i]), r: 2.5 }));
    }
    const read = this.curves.find((curve) => !curve.group && nearest(curve, at) >= 0);
    if (at !== null && read) {
      const step = read.steps[nearest(read, at)];
      parts.push(s("line", { class: "cursor", x1: x(step), x2: x(step), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
    }
    // the number of the group stands at the end of its line; numbers that would overlap move down
    labels.sort((a, b) => a.y - b.y);
    let lowest = -Infinity;
    for (const label of labels) {
      lowest = Math.max(label.y + 4, lowest + LABEL);
      parts.push(s("text", { class: "group", x: label.x + 2, y: lowest }, `${label.group}`));
    }
    this.svg.replaceChildren(...parts);
    this.caption(at, hasGroups);
  }

  caption(at, hasGroups) {
    const first = this.curves.filter((curve) => !curve.group);
    first.sort((a, b) => PHASES.indexOf(a.phase) - PHASES.indexOf(b.phase));
    const shown = first.map((curve) => {
      const i = nearest(curve, at);
      const where = at === null || i < 0 ? "" : ` at ${integer(curve.steps[i])}`;
      return h("span", { class: `value num ${curve.phase}` }, `${curve.phase} `, h("b", {}, number(i < 0 ? null : curve.values[i])), where);
    });
    const note = hasGroups ? [h("span", { class: "note" }, "of worker group 0; numbers at the lines are worker groups")] : [];
    this.title.replaceChildren(capital(words(this.metric)), ...shown, ...note);
  }
}

const charts = new Map();
const RANK = (metric) => (metric === "samples_per_s" ? 3 : metric.endsWith("loss") ? 0 : metric.includes("accuracy") ? 1 : 2);

function showCurves(place, job) {
  const byMetric = new Map();
  for (const curve of job.curves) byMetric.set(curve.metric, [...(byMetric.get(curve.metric) || []), curve]);
  const metrics = [...byMetric.keys()].sort((a, b) => RANK(a) - RANK(b) || (a < b ? -1 : 1));
  const order = `${job.id}\n${metrics.join("\n")}`;
  if (place.order !== order) {
    place.order = order;
    charts.clear();
    for (const metric of metrics) charts.set(metric, new Chart(metric));
    place.replaceChildren(...[...charts.values()].map((chart) => chart.element));
  }
  for (const metric of metrics) charts.get(metric).update(byMetric.get(metric));
}

/* ---- topology ---- */

const UNIT = { width: 42, height: 22, gap: 6 };
const BOX = { pad: 10, head: 40, gap: 10 };

const partsOf = (unit) => unit.split("-");
const kindOf = (unit) => partsOf(unit)[0];
const short = (unit) => { const [kind, group, id] = partsOf(unit); return `${kind === "server" ? "S" : "W"} ${group}.${id}`; };
const clip = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);

function unitMark(unit, job, x, y) {
  const facts = job.workers[unit];
  const slow = facts && facts.slow;
  const kind = kindOf(unit) === "server" ? "server" : `worker g${partsOf(unit)[1] % 8}`;
  const waits = job.processes.map((each) => each.waits[unit]).find(Boolean) || [];
  const said = [unit, facts ? `step ${facts.step}` : "", slow ? `computes ${slow} times as long as others` : "",
    waits.length ? `waits for ${waits[0]} (${Math.round(waits[1])} s)` : ""];
  return s("g", { transform: `translate(${x} ${y})` },
    s("title", {}, said.filter(Boolean).join("\n")),
    s("rect", { class: `${kind}${slow ? " slow" : ""}`, width: UNIT.width, height: UNIT.height, rx: 5 }),
    s("text", { class: "unit", x: UNIT.width / 2, y: 15 }, short(unit)));
}

function sizeOf(process) {
  const perRow = Math.min(4, Math.max(2, process.units.length));
  const nRows = Math.max(1, Math.ceil(process.units.length / perRow));
  return {
    perRow,
    width: 2 * BOX.pad + perRow * UNIT.width + (perRow - 1) * UNIT.gap,
    height: BOX.head + BOX.pad + nRows * UNIT.height + (nRows - 1) * UNIT.gap,
  };
}

function processMark(index, process, size, job, x, y) {
  const life = process.life > 0 ? ` · life ${process.life}` : "";
  const { cpu, memory, memory_limit: limit } = process;
  const used = memory === null ? [] : [`${Math.round(cpu)} %`, bytes(memory)];
  const said = used.length ? `\nCPU ${used[0]} of a core, memory ${used[1]}${limit ? ` of ${bytes(limit)}` : ""}` : "";
  const parts = [s("title", {}, `process ${index}${life}\nDask worker ${process.name}\n${process.address}${said}`),
    s("rect", { class: "process", width: size.width, height: size.height, rx: 8 }),
    s("text", { class: "strong", x: BOX.pad, y: 17 }, `process ${index}`),
    s("text", { x: size.width - BOX.pad, y: 17, "text-anchor": "end" }, process.life > 0 ? `life ${process.life}` : ""),
    s("text", { class: limit && memory > 0.8 * limit ? "usage full" : "usage", x: BOX.pad, y: 32 }, used.join(" · "))];
  process.units.forEach((unit, i) => parts.push(unitMark(unit, job,
    BOX.pad + (i % size.perRow) * (UNIT.width + UNIT.gap),
    BOX.head + Math.floor(i / size.perRow) * (UNIT.height + UNIT.gap))));
  return s("g", { transform: `translate(${x} ${y})` }, ...parts);
}

/* Draws the processes of a host in rows, in a frame. */
function hostMark(host, processes, job, width) {
  const parts = [];
  let [x, y, rowHeight, widest] = [BOX.pad, 30, 0, 0];
  for (const [index, process] of processes) {
    const size = sizeOf(process);
    if (x > BOX.pad && x + size.width + BOX.pad > width) { x = BOX.pad; y += rowHeight + BOX.gap; rowHeight = 0; }
    parts.push(processMark(index, process, size, job, x, y));
    x += size.width + BOX.gap;
    rowHeight = Math.max(rowHeight, size.height);
    widest = Math.max(widest, x);
  }
  const frame = { width: Math.max(widest - BOX.gap + BOX.pad, 150), height: y + rowHeight + BOX.pad };
  const svg = s("svg", { width: frame.width, height: frame.height, role: "img", "aria-label": `units on ${host}` },
    s("rect", { class: "host", x: 0.5, y: 0.5, width: frame.width - 1, height: frame.height - 1, rx: 10 }),
    s("text", { x: BOX.pad + 2, y: 20 }, clip(host || "not on a Dask worker", Math.floor(frame.width / 7))), ...parts);
  svg.style.width = `${frame.width}px`;
  return svg;
}

function showTopology(place, job) {
  const width = Math.max(240, place.clientWidth - 42);
  const slow = Object.keys(job.workers).filter((unit) => job.workers[unit].slow);
  show(place, [job.id, job.processes, job.topology, slow, width], () => {
    const hosts = new Map();
    job.processes.forEach((process, i) => hosts.set(process.host, [...(hosts.get(process.host) || []), [i, process]]));
    const t = job.topology;
    const caption = `${plural(t.nworker_groups, "worker group")} of ${t.nworkers_per_group}, ` +
      `${plural(t.nserver_groups, "server group")} of ${t.nservers_per_group}, in ` +
      `${plural(job.processes.length, "process", "processes")} on ${plural(hosts.size, "host")}`;
    return [h("h3", {}, "Units", h("span", { class: "muted" }, caption)),
      h("div", { class: "hosts" }, ...[...hosts].map(([host, processes]) => hostMark(host, processes, job, width))),
      h("div", { class: "legend" }, h("span", {}, "W group.worker, in the colour of its group"), h("span", {}, "S group.server, outlined"),
        h("span", {}, "CPU in percent of a core, and memory"))];
  });
}

/* ---- workers ---- */

const SPENT = [["compute", "computes"], ["data", "waits for records"], ["params", "waits for params"], ["peers", "waits for its group"]];

function workerRow(unit, facts) {
  const bar = h("div", { class: "spent", role: "img" });
  const said = [];
  for (const [name, what] of SPENT) {
    const share = facts.shares[name];
    if (share <= 0) continue;
    const part = h("i", { class: name });
    part.style.width = `${100 * share}%`;
    bar.append(part);
    said.push(`${what} ${Math.round(100 * share)} %`);
  }
  bar.title = said.join("\n");
  bar.setAttribute("aria-label", said.join(", "));
  return h("div", { class: facts.slow ? "worker-row num slow" : "worker-row num" }, h("span", {}, unit), bar,
    h("span", {}, integer(facts.step)), h("span", {}, facts.steps_per_s === null ? "–" : number(facts.steps_per_s)),
    h("span", {}, facts.compute_ms === null ? "–" : `${number(facts.compute_ms)} ms`));
}

function showWorkers(place, job) {
  const order = (unit) => partsOf(unit).slice(1).map((n) => n.padStart(6, "0")).join();
  const units = Object.keys(job.workers).sort((a, b) => (order(a) < order(b) ? -1 : 1));
  const slow = units.filter((unit) => job.workers[unit].slow);
  place.hidden = job.ended !== null || !units.length;
  show(place, [job.id, job.workers], () => {
    const head = () => h("div", { class: "worker-row head" }, h("span", {}, "worker"), h("span", {}, "last 10 s"), h("span", {}, "step"),
      h("span", {}, "steps/s"), h("span", {}, "compute"));
    const half = units.length > 8 ? Math.ceil(units.length / 2) : units.length;
    const lists = [units.slice(0, half), units.slice(half)].filter((list) => list.length);
    const said = slow.length ? slow.map((unit) => `${unit} computes ${job.workers[unit].slow} times as long as others`).join(", ") : "";
    return [h("h3", {}, "Workers", h("span", { class: "muted" }, said)),
      h("div", { class: "workers" }, ...lists.map((list) => h("div", {}, head(), ...list.map((unit) => workerRow(unit, job.workers[unit]))))),
      h("div", { class: "legend" }, ...SPENT.map(([name, what]) => h("span", {}, h("i", { class: name }), what)),
        h("span", {}, h("i", { class: "rest" }), "else: tests, checkpoints, done"))];
  });
}

/* ---- the job ---- */

/* Makes a link to a text about a job, with the token of this page. */
function textLink(word, path, job) {
  const query = new URLSearchParams({ id: job.id });
  const token = new URLSearchParams(location.search).get("token");
  if (token) query.set("token", token);
  return h("a", { href: `singa/${path}?${query}`, target: "_blank", rel: "noopener" }, word);
}

/* Shows why a job has ended, or waits: this in one line, until it is unfolded. */
let reason = null;
function reasonOf(job) {
  if (!job.reason) return null;
  const key = JSON.stringify([job.id, job.state, job.reason]);
  if (reason === null || reason.key !== key) {
    reason = job.state === "queued" ? h("details", { class: "reason" }, h("summary", { title: job.reason }, job.reason))
      : h("p", { class: "reason" }, job.reason);
    reason.key = key;
  }
  return reason;
}

const stat = (name, value, more) => h("div", {}, h("dt", {}, name), h("dd", { class: "num" }, value, more ? h("small", {}, ` ${more}`) : ""));

function showHead(place, job) {
  const ended = job.ended !== null;
  const seconds = (ended ? job.ended : job.time) - job.began;
  show(place, [job.id, job.name, job.owner, job.run_url, job.standing, job.step, job.train_steps, job.metrics, job.samples_per_s, job.restarts,
    job.bytes, job.lr, job.left_s, job.has_log, job.reason, Math.round(seconds)], () => {
    const stats = [stat("Step", stepOf(job), job.train_steps ? `of ${integer(job.train_steps)}` : "")];
    if (job.left_s !== null) stats.push(stat("Time to go", duration(job.left_s)));
    for (const phase of PHASES) {
      for (const [name, value] of Object.entries(job.metrics[phase] || {}).slice(0, 3)) stats.push(stat(`${capital(phase)} ${words(name)}`, number(value)));
    }
    if (job.lr !== null) stats.push(stat("Learning rate", number(job.lr)));
    if (job.samples_per_s) stats.push(stat("Samples/s", number(job.samples_per_s)));
    stats.push(stat("Restarts", integer(job.restarts)));
    if (job.bytes.sent) stats.push(stat("Sent", bytes(job.bytes.sent)));
    const parts = [
      h("div", { class: "title" }, h("h2", {}, job.name), h("span", { class: "pill" }, h("span", { class: `dot ${kindOfEnd(job)}` }), job.standing),
        h("span", { class: "muted when num" }, job.owner ? `${job.owner} · ` : "", ended ? `${moment(job.began)} to ${moment(job.ended)} · ran ${duration(seconds)}` : `since ${moment(job.began)} · ${duration(seconds)}`)),
      h("p", { class: "where muted mono" }, job.id, job.has_log ? textLink("log", "log.txt", job) : "",
        job.processes.length && !ended ? textLink("stacks", "stacks.txt", job) : ""),
      job.run_url ? h("p", { class: "where muted mono" }, job.run_url) : null,
      reasonOf(job),
      h("dl", { class: "stats" }, ...stats)];
    if (job.train_steps && !ended) {
      const done = h("i");
      done.style.width = `${Math.min(100, (100 * Math.max(0, job.step)) / job.train_steps)}%`;
      parts.push(h("div", { class: "bar", role: "progressbar", "aria-valuenow": job.step, "aria-valuemax": job.train_steps }, done));
    }
    return parts;
  });
}

function showEvents(place, job) {
  place.hidden = !job.events.length;
  show(place, [job.id, job.events, job.reasons], () => [
    job.reasons.length ? h("h3", {}, "Restarts") : null,
    ...job.reasons.map((reason) => h("p", { class: "restart" }, reason)),
    h("h3", {}, "Last events"), h("div", { class: "events" }, ...job.events.flatMap((event) => [
    h("span", { class: "muted num" }, clock(event.time)),
    h("span", { class: `text ${event.level} ${event.event}` }, event.text)]))]);
}

const sections = {};
function showJob(job) {
  const main = $("job");
  if (main.of !== "job") {
    main.of = "job";
    for (const name of ["head", "topology", "workers", "events"]) sections[name] = h("section", { class: "panel", id: name });
    sections.curves = h("div", { class: "charts", id: "curves" });
    main.replaceChildren(sections.head, sections.curves, sections.topology, sections.workers, sections.events);
  }
  document.title = `${job.name} · singa-dask`;
  sections.topology.hidden = !job.processes.length;
  showHead(sections.head, job);
  showCurves(sections.curves, job);
  if (job.processes.length) showTopology(sections.topology, job);
  showWorkers(sections.workers, job);
  showEvents(sections.events, job);
}

function showNothing(text, command) {
  const main = $("job");
  const what = `${text}\n${command}`;
  if (main.of === what) return;
  main.of = what;
  main.replaceChildren(h("div", { class: "panel empty" }, h("p", {}, text), command ? h("code", { class: "mono" }, command) : ""));
}

/* ---- time ---- */

let chosen = null;
let heard = null;

async function ask(path) {
  const token = new URLSearchParams(location.search).get("token");
  const answer = await fetch(path, { cache: "no-store", headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (answer.status === 404) return null;  // the scheduler has forgotten the job
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

function choose(overview) {
  let wanted = "";
  try { wanted = decodeURIComponent(location.hash.slice(1)); } catch (error) { /* no such job */ }
  if (wanted) return wanted;
  const first = overview.jobs.find((job) => job.ended === null) || overview.jobs[0];
  return first ? first.id : null;
}

async function update() {
  const overview = await ask("singa/jobs.json");
  chosen = choose(overview);
  $("scheduler").textContent = overview.scheduler;
  showList(overview);
  if (chosen === null) {
    showNothing("No job has run here yet.", `singa-dask run JOB.yaml --scheduler ${overview.scheduler}`);
  } else {
    const job = await ask(`singa/job.json?id=${encodeURIComponent(chosen)}`);
    if (job) showJob(job); else showNothing("The scheduler does not know this job, or not any more.", chosen);
  }
}

let timer = null;
let runs = false;

async function tick() {
  if (runs) return;
  runs = true;
  clearTimeout(timer);
  try {
    await update();
    heard = Date.now();
    $("status").textContent = "live";
    $("status").className = "";
  } catch (error) {
    const since = heard === null ? "" : ` for ${duration((Date.now() - heard) / 1000)}`;
    $("status").textContent = `The scheduler has not answered${since}`;
    $("status").className = "late";
  }
  runs = false;
  timer = setTimeout(tick, document.hidden ? 20 * EVERY_MS : EVERY_MS);
}

addEventListener("hashchange", tick);
addEventListener("resize", tick);
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
tick();

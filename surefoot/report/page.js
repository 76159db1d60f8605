"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const COLORS = ["#3b82f6", "#f97316", "#10b981", "#e11d48", "#8b5cf6", "#eab308", "#06b6d4", "#84cc16", "#ec4899", "#64748b"];
const AXES = { step: "step", time: "minutes of training", episode: "episode" };
const T95 = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09];
const LTA = data.runs.every((run) => run.config.score === "lta");
const [RECENT, EVALUATED] = LTA ? ["recent/lta_return_mean", "eval/lta_return_mean"] : ["recent/return_mean", "eval/return_mean"];
const PANELS = [
  ["Learning", [
    [LTA ? "Long-term average of recent episodes" : "Return of recent episodes", [RECENT], "wide"],
    ...(LTA ? [["Return of recent episodes", ["recent/return_mean"]]] : []),
    ["Length of recent episodes", ["recent/length_mean"]],
    ["Success", ["recent/success_rate"], "", { range: [-0.02, 1.05] }],
    ["Return in each rollout", ["rollout/episode_return_mean"]],
    ["Reward per step", ["rollout/reward_mean"]],
  ]],
  ["Losses", [
    ["Policy loss", ["ppo/policy_loss", "sac/actor_loss"]],
    ["Value loss", ["ppo/value_loss"]],
    ["Critic losses", ["sac/critic_loss_1", "sac/critic_loss_2"]],
    ["Entropy", ["ppo/entropy", "sac/entropy"]],
    ["Temperature", ["sac/alpha"]],
    ["Temperature loss", ["sac/temperature_loss"]],
    ["KL divergence", ["ppo/approx_kl", "ppo/approx_kl_k1"]],
    ["Share of clipped samples", ["ppo/clip_fraction"]],
    ["Explained variance", ["ppo/explained_variance"], "", { range: [-1, 1.05] }],
    ["Values and targets", ["ppo/value_mean", "ppo/target_mean", "sac/q_mean_1", "sac/q_mean_2", "sac/target_mean"]],
    ["Error of the critics", ["sac/td_error_abs"]],
    ["Deviation of advantages", ["ppo/advantage_std"]],
    ["Average reward, as estimated", ["ppo/eta"]],
    ["Rewards, mean and deviation", ["reward/raw_mean", "reward/raw_std"]],
    ["Rewards as learned from, mean and deviation", ["reward/learned_mean", "reward/learned_std"]],
  ]],
  ["Schedules", [
    ["Learning rate", ["ppo/learning_rate", "ppo/value_learning_rate", "sac/learning_rate", "sac/value_learning_rate"]],
    ["Clip range", ["ppo/clip_range", "ppo/value_clip_range"]],
    ["Entropy coefficient", ["ppo/entropy_coefficient"]],
    ["Transitions in the replay buffer", ["sac/replay_size"]],
  ]],
  ["Optimizer", [
    ["Gradient norms", ["grad/policy_norm", "grad/value_norm", "grad/temperature_norm"]],
    ["Parameter updates, norms", ["update/policy_norm", "update/value_norm", "update/temperature_norm"]],
    ["Adam, first moment", ["optim/policy_first_moment", "optim/value_first_moment", "optim/temperature_first_moment"]],
    ["Adam, second moment", ["optim/policy_second_moment", "optim/value_second_moment", "optim/temperature_second_moment"]],
  ]],
];
// Settings in which runs of one kind may differ.
const NUMBERLESS = ["seed", "collector", "n_proc", "step_timeout", "worker_restarts", "on_env_error", "tensorboard", "wandb", "video_every", "evaluate_every", "evaluate_episodes", "hall_of_fame", "keep", "max_hours"];
const LONGEST = 28, LONGEST_MEAN = 44, CLOSE = 250;
const ELSEWHERE = ["recent/terminated_rate", EVALUATED, "eval/return_std", "best/return", "best/lta_return", "recent/success_reported", "update/epochs", "update/optimizer_steps"];
const COARSE = window.matchMedia("(pointer: coarse)").matches;
const state = {
  axis: "step",
  smoothing: 0,
  dark: window.matchMedia("(prefers-color-scheme: dark)").matches,
};
const drawn = [];
const runs = data.runs;
const several = runs.length > 1;
const nicknames = shortened();
const groups = grouped();
const telling = differing();

function shortened() {
  // Without the words that all names begin with.
  const names = runs.map((run) => run.name);
  const words = several ? names[0].match(/[^-_. ]*[-_. ]+/g) ?? [] : [];
  let shared = "";
  for (const word of words) {
    if (!names.every((name) => name.startsWith(shared + word) && name !== shared + word)) break;
    shared += word;
  }
  return names.map((name) => name.slice(shared.length));
}

function grouped() {
  const found = new Map();
  runs.forEach((run, index) => {
    const learning = Object.entries(run.config).filter(([name]) => !free(name));
    const key = JSON.stringify(learning);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(index);
  });
  return [...found.values()];
}

function differing() {
  const settings = groups.map(([first]) => runs[first].config);
  const names = [...new Set(settings.flatMap(Object.keys))].filter((name) => !free(name));
  const found = names.filter((name) => new Set(settings.map((setting) => setting[name])).size > 1);
  return found.sort((one, other) => other.includes(".") - one.includes(".")); // of algorithm and policy first
}

function free(name) {
  return NUMBERLESS.some((other) => name === other || name.startsWith(other + "."));
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function axisOf(run) {
  const values = run.axes[state.axis];
  return state.axis === "time" ? values.map((seconds) => seconds / 60) : values;
}

function place(mark) {
  return state.axis === "time" ? mark.time / 60 : mark[state.axis];
}

function smoothed(values) {
  if (!state.smoothing) return values;
  let mean = 0, weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = state.smoothing * mean + (1 - state.smoothing) * value;
    weight = state.smoothing * weight + (1 - state.smoothing);
    return mean / weight;
  });
}

function present(xs, ys) {
  const keep = ys.map((y, i) => i).filter((i) => ys[i] !== null);
  return [keep.map((i) => xs[i]), keep.map((i) => ys[i])];
}

function at(xs, ys, x) {
  if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return null;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  const span = xs[high] - xs[low];
  return span ? ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / span : ys[high];
}

function band(members, metric) {
  const curves = members
    .filter((index) => runs[index].metrics[metric])
    .map((index) => present(axisOf(runs[index]), smoothed(runs[index].metrics[metric])));
  const start = Math.max(...curves.map(([xs]) => xs[0]));
  const end = Math.min(...curves.map(([xs]) => xs[xs.length - 1]));
  const grid = Array.from({ length: 300 }, (_, i) => start + (end - start) * i / 299);
  const result = { x: [], mean: [], low: [], high: [] };
  for (const x of grid) {
    const ys = curves.map(([xs, values]) => at(xs, values, x)).filter((y) => y !== null);
    if (ys.length < 2) continue;
    const mean = ys.reduce((a, b) => a + b, 0) / ys.length;
    const variance = ys.reduce((a, b) => a + (b - mean) ** 2, 0) / (ys.length - 1);
    const reach = (T95[ys.length - 2] || 1.96) * Math.sqrt(variance / ys.length);
    result.x.push(x); result.mean.push(mean); result.low.push(mean - reach); result.high.push(mean + reach);
  }
  return result;
}

function escaped(text) {
  // Plotly takes some HTML; what others wrote is none.
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

function cut(text, most) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

function plain(name) {
  return escaped(cut(name, LONGEST));
}

function label(who, metric, most = LONGEST) {
  // What is shown stays whole, who it is of is cut.
  const what = metric ? `, ${short(metric)}` : "";
  return escaped(cut(who, Math.max(12, most - what.length)) + what);
}

function line(x) {
  return x.length < 2 ? "markers" : "lines";
}

function short(metric) {
  return metric.split("/").slice(1).join("/");
}

function curves(metrics) {
  const traces = [];
  metrics.forEach((metric, m) => {
    groups.forEach((members) => {
      const there = members.filter((index) => runs[index].metrics[metric]);
      if (there.length > 1) traces.push(...bandTraces(there, metric, m, metrics.length > 1));
      there.forEach((index) => traces.push(...runTraces(index, metric, m, metrics.length > 1, there.length > 1)));
    });
  });
  return traces;
}

function bandTraces(members, metric, m, named) {
  const color = COLORS[members[0] % COLORS.length];
  const { x, mean, low, high } = band(members, metric);
  const told = telling.slice(0, 2).map((name) => `${name.split(".").pop()} ${runs[members[0]].config[name] ?? "none"}`);
  const seeds = new Set(members.map((index) => runs[index].config.seed)).size;
  const who = [`mean of ${members.length} ${seeds === members.length ? "seeds" : "runs"}`, ...told, ...(telling.length > 2 ? ["…"] : [])].join(", ");
  const name = label(who, named ? metric : "", LONGEST_MEAN);
  const id = `band ${members[0]} ${metric}`;
  const edge = { mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: id };
  return [
    { x, y: low, ...edge, uid: id + " low" },
    { x, y: high, ...edge, uid: id + " high", fill: "tonexty", fillcolor: color + "33" },
    { x, y: mean, mode: "lines", name, legendgroup: id, uid: id, line: { color, width: 2.5, dash: m ? "dot" : "solid" } },
  ];
}

function runTraces(index, metric, m, named, banded) {
  const run = runs[index];
  const color = COLORS[(several ? index : m) % COLORS.length];
  const dash = several && m ? "dot" : "solid";
  const name = several ? label(nicknames[index], named ? metric : "") : plain(short(metric));
  const [x, raw] = present(axisOf(run), run.metrics[metric]);
  const id = `${index} ${metric}`;
  const thin = { x, mode: line(x), marker: { color }, line: { color, width: 1, dash }, legendgroup: id };
  if (banded) return [{ ...thin, uid: id, y: smoothed(raw), name, opacity: 0.35, showlegend: false }];
  if (!state.smoothing) return [{ ...thin, uid: id, y: raw, name, line: { color, width: 1.8, dash } }];
  return [
    { ...thin, uid: id + " raw", y: raw, opacity: 0.3, hoverinfo: "skip", showlegend: false },
    { ...thin, uid: id, y: smoothed(raw), name, line: { color, width: 2, dash } },
  ];
}

function learningCurve(metrics) {
  const traces = curves(metrics);
  const named = new Set();
  const add = (index, name, trace) => {
    const text = several ? [].concat(trace.x).map(() => plain(nicknames[index])) : undefined;
    traces.push({ ...trace, text, name, uid: `${index} ${name}`, legendgroup: name, showlegend: !named.has(name) });
    named.add(name);
  };
  runs.forEach((run, index) => {
    const color = COLORS[(several ? index : 1) % COLORS.length];
    if (run.metrics[EVALUATED]) {
      const [x, y] = present(axisOf(run), run.metrics[EVALUATED]);
      add(index, "evaluation", { x, y, mode: "markers+lines", marker: { color, size: 7 }, line: { color, width: 1, dash: "dot" } });
    }
    if (run.asked.length) {
      add(index, "evaluation by key", { x: run.asked.map(place), y: run.asked.map((one) => one.score), mode: "markers", marker: { color, size: 9, symbol: "x" } });
    }
    if (run.best) {
      add(index, "best checkpoint", { x: [place(run.best)], y: [run.best.score], mode: "markers", marker: { color: "#eab308", size: 14, symbol: "star", line: { color: "#854d0e", width: 1 } } });
    }
  });
  return traces;
}

function markTraces() {
  const kinds = new Map();
  runs.forEach((run, index) => run.marks.forEach((mark) => {
    if (!kinds.has(mark.kind)) kinds.set(mark.kind, []);
    kinds.get(mark.kind).push([place(mark), escaped(several ? `${nicknames[index]}: ${mark.text}` : mark.text)]);
  }));
  return [...kinds.entries()].map(([kind, marks], k) => ({
    x: marks.map(([x]) => x), y: marks.map(() => 1), yaxis: "y2", text: marks.map(([, text]) => text),
    mode: "markers", name: kind, uid: kind, hovertemplate: "%{text}<extra></extra>",
    marker: { symbol: "line-ns", size: 22, line: { width: 2, color: COLORS[(k + 3) % COLORS.length] } },
  }));
}

function split(run) {
  const parts = run.parts.filter((name) => run.metrics[name]);
  const totals = axisOf(run).map((_, i) => parts.reduce((sum, name) => sum + (run.metrics[name][i] || 0), 0) || 1);
  return parts.map((name, k) => ({
    x: axisOf(run), y: run.metrics[name].map((value, i) => 100 * (value || 0) / totals[i]),
    name: plain(short(name)), stackgroup: "time", mode: "lines", line: { width: 0, color: COLORS[k % COLORS.length] },
    hovertemplate: "%{y:.1f} %",
  }));
}

function layout(options = {}) {
  const style = getComputedStyle(document.documentElement);
  const [front, line] = ["--front", "--line"].map((name) => style.getPropertyValue(name).trim());
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
  return {
    margin: { l: 48, r: 12, t: 8, b: 36 },
    uirevision: options.x ?? state.axis, // zoom and hidden curves stay
    dragmode: COARSE ? false : "zoom", // a finger scrolls
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: front, size: 11 },
    hovermode: "x unified",
    hoverlabel: { bgcolor: style.getPropertyValue("--card").trim(), bordercolor: line, font: { color: front }, namelength: 40 },
    showlegend: options.legend ?? true,
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, traceorder: "normal", font: { size: 10 } },
    xaxis: { ...axis, hoverformat: state.axis === "time" && !options.x ? ",.1f" : ",.0f", title: { text: options.x ?? AXES[state.axis], standoff: 4 }, ...options.across },
    yaxis: { ...axis, exponentformat: "e", minexponent: 5, separatethousands: true, title: options.y ? { text: options.y } : undefined, ...options.up },
    yaxis2: { overlaying: "y", range: [0, 1.06], visible: false, fixedrange: true },
    shapes: options.shapes ?? [],
    barmode: "overlay",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: front },
  };
}

function card(title, traces, options = {}) {
  const plot = element("div", { class: "plot" });
  const box = element("section", { class: options.wide ? "card wide" : "card" }, heading("h3", title));
  if (options.note) box.append(note(options.note));
  box.append(plot);
  let seen = false, stale = true;
  const draw = () => {
    stale = !seen;
    if (!seen) return;
    const made = traces();
    const legend = options.legend ?? made.filter((trace) => trace.showlegend !== false).length > 1;
    const shapes = options.shapes ? options.shapes() : [];
    const buttons = { displaylogo: false, displayModeBar: COARSE ? false : "hover", modeBarButtonsToRemove: ["lasso2d", "select2d"] };
    Plotly.react(plot, made, layout({ ...options, up: { ...heights(made), ...options.up }, legend, shapes }), { responsive: true, ...buttons });
  };
  new IntersectionObserver((entries) => {
    seen = entries[entries.length - 1].isIntersecting;
    if (stale) draw();
  }, { rootMargin: "300px" }).observe(plot);
  drawn.push(draw);
  return box;
}

function heights(traces) {
  // Few seeds have wide intervals: what was measured is to be seen first. What never changes is to be
  // seen beside 0.
  const seen = traces.filter((trace) => trace.line?.width !== 0 && !trace.yaxis).flatMap((trace) => trace.y ?? []).filter((y) => y !== null);
  const low = seen.reduce((a, b) => Math.min(a, b), Infinity), high = seen.reduce((a, b) => Math.max(a, b), -Infinity);
  if (low === high && low) return { range: [Math.min(0, 2 * low), Math.max(0, 2 * low)] };
  if (!traces.some((trace) => trace.fill === "tonexty")) return {};
  const more = 0.08 * (high - low) || 1;
  return { range: [low - more, high + more] };
}

function heading(level, text) {
  const made = element(level);
  made.textContent = text;
  return made;
}

function note(text) {
  const made = element("p");
  made.textContent = text;
  return made;
}

function section(title, cards) {
  if (!cards.length) return [];
  return [heading("h2", title), element("div", { class: "cards" }, ...cards)];
}

function some(metrics) {
  return metrics.filter((metric) => runs.some((run) => run.metrics[metric] && run.metrics[metric].some((value) => value !== null)));
}

function header() {
  const top = element("header", {}, heading("h1", several ? `${runs.length} runs` : runs[0].name));
  runs.forEach((run, index) => {
    const facts = element("div", { class: "facts" });
    for (const [name, value] of Object.entries(run.headline)) {
      const label = element("span"); label.textContent = name;
      const fact = element("div", {}, label); fact.append(value);
      facts.append(fact);
    }
    if (!several) { top.append(facts); return; }
    const box = element("div", { class: "run", style: `--color: ${COLORS[index % COLORS.length]}` }, heading("strong", run.name), facts);
    top.append(box);
  });
  return top;
}

function controls() {
  const axis = element("select", { id: "axis" });
  for (const [value, text] of Object.entries(AXES)) axis.append(new Option(text, value));
  axis.onchange = () => { state.axis = axis.value; redraw(); };
  const slider = element("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0, id: "smoothing" });
  const shown = element("output"); shown.textContent = "0.00";
  slider.oninput = () => { state.smoothing = Number(slider.value); shown.textContent = state.smoothing.toFixed(2); redraw(); };
  const theme = element("button", { type: "button", id: "theme" });
  const dress = () => {
    document.documentElement.dataset.theme = state.dark ? "dark" : "light";
    theme.textContent = state.dark ? "light" : "dark";
  };
  theme.onclick = () => { state.dark = !state.dark; dress(); redraw(); };
  dress();
  return element("div", { class: "controls" }, element("label", {}, "over", axis), element("label", {}, "smoothing", slider, shown), theme);
}

let waiting = 0;
function redraw() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => drawn.forEach((draw) => draw()));
}

function panels() {
  const known = new Set(ELSEWHERE);
  const each = Math.max(...runs.map((run) => run.each));
  const note = each > 1 ? `each point is the mean of ${each} iterations` : "";
  let marked = false; // the first card says what happened: without episodes there is no learning curve
  const made = PANELS.flatMap(([title, cards]) => section(title, cards.flatMap(([name, metrics, wide, up]) => {
    metrics.forEach((metric) => known.add(metric));
    const there = some(metrics);
    if (!there.length) return [];
    const marks = marked ? () => [] : markTraces;
    marked = true;
    const traces = () => [...(wide ? learningCurve(there) : curves(there)), ...marks()];
    const told = { [RECENT]: note, "recent/success_rate": succeeded() }[metrics[0]] ?? "";
    return [card(name, traces, { wide, up, note: told })];
  })));
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))].filter((name) => !known.has(name));
  const of = (prefix) => some(names.filter((name) => name.startsWith(prefix)).sort());
  const lone = (prefix) => of(prefix).map((name) => card(short(name), () => curves([name])));
  made.push(...section("What the environment reports", lone("env/")));
  made.push(...section("Evaluations", [...courses(), ...lone("eval/")]));
  made.push(...section("Episodes", episodes()));
  made.push(...section("Time", times()));
  const rest = some(names.filter((name) => !/^(env|eval|time|progress)\//.test(name)).sort());
  made.push(...section("Everything else", rest.map((name) => card(name, () => curves([name])))));
  return made;
}

function courses() {
  return runs.filter((run) => run.courses.length).map((run) => {
    const traces = () => run.courses.flatMap((one, k) => {
      const color = COLORS[k % COLORS.length], name = `step ${one.step.toLocaleString("en")}`;
      const edge = { x: one.time, mode: "lines", line: { width: 0, color }, hoverinfo: "skip", showlegend: false, legendgroup: name };
      return [
        { ...edge, y: one.mean.map((mean, i) => mean - one.std[i]) },
        { ...edge, y: one.mean.map((mean, i) => mean + one.std[i]), fill: "tonexty", fillcolor: color + "22" },
        { x: one.time, y: one.mean, name, legendgroup: name, mode: "lines", line: { width: 2, color } },
      ];
    });
    const title = several ? `Average reward within evaluations: ${run.name}` : "Average reward within evaluations";
    return card(title, traces, { x: "step of the evaluation", wide: !several, legend: true, up: { range: undefined }, note: "of all steps so far; shaded: one standard deviation over rows" });
  });
}

function succeeded() {
  const reported = runs.some((run) => (run.metrics["recent/success_reported"] ?? []).some((value) => value));
  return reported ? "as the environment reports it (is_success)" : "nothing is reported: episodes that ended by termination";
}

function episodes() {
  return [["return", "Returns of the last episodes"], ["length", "Lengths of the last episodes"]].flatMap(([key, title]) => {
    if (!runs.some((run) => run.episodes[key].length)) return [];
    const traces = () => runs.map((run, index) => ({
      x: run.episodes[key], type: "histogram", name: plain(nicknames[index]), opacity: several ? 0.6 : 0.9, nbinsx: 30,
      marker: { color: COLORS[index % COLORS.length] },
    }));
    return [card(title, traces, { x: key, y: "episodes" })];
  });
}

function times() {
  const made = runs.filter((run) => run.parts.length).map((run) =>
    card(several ? `Where the time went: ${run.name}` : "Where the time went", () => split(run), { y: "% of an iteration", legend: true, wide: !several }));
  if (some(["time/steps_per_second"]).length) made.push(card("Steps per second", () => curves(["time/steps_per_second"])));
  return made;
}

function trajectories() {
  return runs.flatMap((run) => run.trajectories.flatMap((one) => {
    const steps = one.reward.map((_, t) => t);
    const curve = (values, name, k) => ({ x: steps, y: values, name: plain(name), mode: "lines", line: { width: 1.5, color: COLORS[k % COLORS.length] } });
    const contacts = Object.keys(one.channels).filter((name) => name.includes("contact"));
    const shading = () => contacts.flatMap((name, k) => phases(one.channels[name]).map(([x0, x1]) => ({
      type: "rect", xref: "x", yref: "paper", x0, x1, y0: contacts.length > 1 ? k / contacts.length : 0,
      y1: (k + 1) / contacts.length, line: { width: 0 }, fillcolor: COLORS[(k + 2) % COLORS.length], opacity: 0.13, layer: "below",
    })));
    const shaded = shading().length ? `shaded: ${contacts.map((name, k) => `${name} (${contacts.length > 1 ? ["below", "above"][k] || k + 1 : "everywhere"})`).join(", ")}` : "";
    const over = { x: "step of the episode" };
    // So few that a gait can be seen.
    const closer = steps.length > 2 * CLOSE ? { ...over, across: { range: [0, CLOSE] } } : over;
    const hint = closer === over ? "" : `the first ${CLOSE} steps (double click: all)`;
    const options = one.options.map((name, k) => [k, name]);
    const up = options.length ? { tickvals: options.map(([k]) => k), ticktext: options.map(([, name]) => plain(name)) } : {};
    const dots = (values) => ({ mode: "markers", marker: { size: 3 }, text: values.map((v) => plain(one.options[v])), hovertemplate: "%{text}" });
    const cards = [
      one.returned.length
        ? card("Value, and what was really returned", () => [curve(one.value, "value", 0), curve(one.returned, "discounted return", 1)], over)
        : card("Value, in units of what is learned from", () => [curve(one.value, "value", 0)], over),
      card("Reward", () => [curve(one.reward, "reward", 2)], { ...over, ...usual(one.reward) }),
      card("Actions", () => Object.entries(one.actions).map(([name, values], k) => ({ ...curve(values, name, k), ...(options.length ? dots(values) : {}) })), { ...closer, up, note: hint }),
      ...Object.entries(one.groups).map(([title, names]) => {
        const contacts = title === "Contacts" ? {} : { shapes: shading };
        const note = [hint, title === "Contacts" ? "" : shaded].filter((text) => text).join("; ");
        return card(title, () => names.map((name, k) => curve(one.channels[name], name, k)), { ...closer, ...contacts, note, legend: true });
      }),
      ...Object.entries(one.info).map(([name, values], k) => card(name, () => [curve(values, name, k)], over)),
    ];
    const of = several ? `${run.name}, ` : "";
    const title = `Episode: ${of}${one.title}, return ${one.return.toFixed(1)} in ${one.length} steps`;
    return section(one.note ? `${title} (${one.note})` : title, cards);
  }));
}

function usual(values) {
  // A single large reward, such as that of a fall, is not to flatten all others.
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
  const [low, high] = [at(0.01), at(0.99)], span = high - low;
  if (!span || at(1) - at(0) < 4 * span) return {};
  return { up: { range: [low - 0.2 * span, high + 0.2 * span] }, note: `from ${at(0)} to ${at(1)}; the rarest are outside (double click: all)` };
}

function phases(values) {
  const found = [];
  values.forEach((value, t) => {
    if (!value) return;
    const last = found[found.length - 1];
    if (last && last[1] === t) last[1] = t + 1; else found.push([t, t + 1]);
  });
  return found;
}

function films() {
  const there = runs.filter((run) => run.film);
  return section("Film", there.map((run) => {
    const bytes = Uint8Array.from(atob(run.film.data), (letter) => letter.charCodeAt(0));
    const src = URL.createObjectURL(new Blob([bytes], { type: "video/mp4" }));
    const video = element("video", { controls: "", loop: "", muted: "", playsinline: "", src });
    return element("section", { class: "card" }, heading("h3", several ? `${run.name}: ${run.film.name}` : run.film.name), video);
  }));
}

function compared(title, key) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run[key])))];
  const table = element("table", { id: key });
  if (several) {
    const row = element("tr", {}, element("th"));
    runs.forEach((run) => row.append(heading("th", run.name)));
    table.append(row);
  }
  for (const name of names) {
    const values = runs.map((run) => run[key][name] ?? "");
    const row = element("tr", new Set(values).size > 1 ? { class: "differs" } : {}, heading("th", name));
    values.forEach((value) => row.append(heading("td", value)));
    table.append(row);
  }
  return [heading("h2", title), element("div", { class: "table" }, table)];
}

document.getElementById("page").append(header(), controls(), ...panels(), ...films(), ...trajectories(), ...compared("What the settings come to", "counts"), ...compared("Settings", "config"));

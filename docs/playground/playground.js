// The page of the playground. It makes command lines of the tool `hetu` from the controls, gives them to the core (core.js,
// the tool's own code) and shows the answers. Methods, options, ranges and all numbers come from the core.
"use strict";

const DEADLOCK = "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n";

const $ = id => document.getElementById(id);
let core = null;  // the compiled tools
let about = null;  // methods and options, as the core lists them
let state = null;
let shown = {};  // the last answers, for tests and downloads
let run = 0;  // number of the newest request; older ones stop

// ---- the core -----------------------------------------------------------------------------------------------------

function ask(request) {
  return JSON.parse(core.ccall("hetu_answer", "string", ["string"], [JSON.stringify(request)]));
}

function tool(words, files = {}) {
  return ask({words, files});
}

const optionOf = (name, table = about.options) => table.find(option => option.name === name);
const methodOf = name => about.methods.find(method => method.name === name);
const dashed = name => name.replaceAll("_", "-");

// Returns whether the option applies to this method; "" stands for an own schedule, which has its sizes itself.
function applies(name, method) {
  if (method === "") return !about.sizes.some(option => option.name === name);
  const special = about.methods.some(m => m.options.includes(dashed(name)));
  return !special || methodOf(method).options.includes(dashed(name));
}

// Returns the words of the options that are set, for a method.
function optionWords(method) {
  const words = [];
  for (const [name, value] of Object.entries(state.values)) {
    const option = optionOf(name);
    if (value === "" || !option || !applies(name, method)) continue;
    if (option.type === "flag") words.push(option.flag);
    else if (value !== option.default || START[name]) words.push(option.flag, value);
  }
  return words;
}

function source() {
  return state.source === "own" ? {method: "", words: ["own.csv"], files: {"own.csv": state.own}}
                                : {method: state.method, words: [state.method], files: {}};
}

// Runs a command on the chosen schedule.
function runChosen(command, ...more) {
  const chosen = source();
  return tool([command, ...chosen.words, ...optionWords(chosen.method), ...more], chosen.files);
}

// ---- the state, in the address ------------------------------------------------------------------------------------

function freshState() {
  const planner = Object.entries(LAYOUT.planner).map(([name, how]) => [name, how.start || ""]);
  return {source: "method", method: START_METHOD, own: "", values: {...START}, planner: Object.fromEntries(planner)};
}

function address() {
  const words = new URLSearchParams();
  words.set("method", state.method);
  if (state.own) words.set("own", state.own);
  if (state.source === "own") words.set("source", "own");
  for (const [name, value] of Object.entries(state.values)) if (value !== "") words.set(name, value);
  const fresh = freshState();
  for (const [name, value] of Object.entries(state.planner))
    if (value !== fresh.planner[name]) words.set("plan." + name, value);
  return "#" + words;
}

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  state = freshState();
  if (methodOf(words.get("method"))) state.method = words.get("method");
  if (words.has("own")) state.own = words.get("own");
  if (words.get("source") === "own") state.source = "own";
  for (const group of [LAYOUT.sizes, LAYOUT.costs, LAYOUT.others])
    for (const name of Object.keys(group)) if (words.has(name)) state.values[name] = words.get(name);
  for (const name of Object.keys(LAYOUT.planner))
    if (words.has("plan." + name)) state.planner[name] = words.get("plan." + name);
}

// ---- the controls -------------------------------------------------------------------------------------------------

function makeControls() {
  const list = $("method");
  for (const method of about.methods) list.append(element("option", {value: method.name}, method.name));
  list.addEventListener("change", () => change(() => { state.method = list.value; }));
  for (const radio of document.querySelectorAll("input[name=source]"))
    radio.addEventListener("change", () => change(() => {
      state.source = radio.value;
      if (state.source === "own" && state.own === "") state.own = rowsOfMethod();
    }));
  $("own").addEventListener("input", () => change(() => { state.own = $("own").value; }));
  $("copy-method").addEventListener("click", () => change(() => { state.own = rowsOfMethod(); }));
  $("show-deadlock").addEventListener("click", () => change(() => { state.own = DEADLOCK; }));
  for (const [place, group] of [["sizes", LAYOUT.sizes], ["costs", LAYOUT.costs], ["others", LAYOUT.others]])
    for (const [name, how] of Object.entries(group))
      $(place).append(makeField(optionOf(name), how, "", () => state.values[name] || "",
                                value => change(() => { state.values[name] = value; })));
  for (const [name, how] of Object.entries(LAYOUT.planner))
    $("planner").append(makeField(optionOf(name, about.plan), how, "plan-", () => state.planner[name] || "",
                                  value => { state.planner[name] = value; showControls(); keepAddress(); }));
  for (const button of document.querySelectorAll("[data-download]"))
    button.addEventListener("click", () => download(button.dataset.download));
  $("search").addEventListener("click", searchPlan);
  $("planner").addEventListener("submit", event => { event.preventDefault(); searchPlan(); });
  $("controls").addEventListener("submit", event => event.preventDefault());
  $("reset").addEventListener("click", () => change(() => { state = freshState(); }));
  $("share").addEventListener("click", share);
  addEventListener("hashchange", () => { if (location.hash !== address()) { readAddress(); showControls(); update(); } });
}

function rowsOfMethod() {
  const made = tool(["schedule", state.method, ...optionWords(state.method), "--format", "csv"]);
  return made.status === 0 ? made.output : "";
}

function showControls() {
  const method = state.source === "own" ? "" : state.method;
  $("method").value = state.method;
  $("copy-name").textContent = state.method;
  for (const radio of document.querySelectorAll("input[name=source]")) radio.checked = radio.value === state.source;
  $("of-method").hidden = method === "";
  $("of-own").hidden = method !== "";
  if ($("own").value !== state.own) $("own").value = state.own;
  const m = methodOf(state.method);
  $("method-doc").textContent = `${m.doc} P, stages: ${m.stages_rule}. M, micro-batches: ${m.micros_rule}.` +
    (m.options.includes("chunks") ? ` V, chunks: ${m.chunks_rule}.` : "");
  for (const box of document.querySelectorAll(".field")) {
    box.read();
    if (box.parentElement.id !== "planner") box.hidden = !applies(box.dataset.option, method);
  }
}

let pending = 0;
function change(act) {
  delete document.body.dataset.tabulated;  // tests wait for it
  act();
  showControls();
  keepAddress();
  clearTimeout(pending);
  pending = setTimeout(update, 60);
}

// Browsers limit how often a page may change its address, and a slider changes it often.
let kept = 0;
function keepAddress() {
  clearTimeout(kept);
  kept = setTimeout(() => history.replaceState(null, "", address()), 200);
}

async function share() {
  history.replaceState(null, "", address());
  try {
    await navigator.clipboard.writeText(location.href);
    $("shared").textContent = "The link is copied.";
  } catch {
    $("shared").textContent = "Copy the address of this page.";
  }
}

// ---- the results --------------------------------------------------------------------------------------------------

const rounded = value => String(Number(Number(value).toPrecision(6)));

function tooLarge() {
  for (const [name, how] of [...Object.entries(LAYOUT.sizes), ...Object.entries(LAYOUT.others)])
    if (how.most && Number(state.values[name]) > how.most)
      return `${title(optionOf(name))}: the playground takes up to ${how.most}. Use the tool hetu for more.`;
  return "";
}

function peakOf(figures) {
  return Math.max(...figures.workers.map(worker => worker.peak_activations));
}

function figuresOf(figures) {
  const unit = figures.time_unit === "unit" ? "" : " " + figures.time_unit;
  return [["Makespan", figures.makespan, unit, "makespan"], ["Time per step", figures.step_time, unit, "step_time"],
          ["Bubble", figures.bubble_fraction, "", "bubble_fraction"],
          ["Peak activations", peakOf(figures), "", "peak_activations"],
          ["Micro-batches per time", figures.throughput, "", "throughput"]];
}

function asPercent(value) {
  return rounded((100 * value).toFixed(4)) + " %";
}

// Returns the text of a figure. The attribute data-value holds its exact value.
function textOf(key, value) {
  return key === "bubble_fraction" ? asPercent(value) : rounded(value);
}

function showFigures(figures) {
  const boxes = figures === null ? [] : figuresOf(figures).map(([name, value, unit, key]) =>
    element("div", {}, element("dt", {}, name),
            element("dd", {"data-figure": key, "data-value": String(value)}, textOf(key, value) + unit)));
  $("figures").replaceChildren(...boxes);
}

function showPicture(svg, text) {
  $("frame").hidden = svg === "";
  $("picture").src = svg === "" ? "data:," : "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg);
  $("picture").alt = text;
}

// Draws the chosen schedule, proves it, and shows its figures, or why it is refused.
function update() {
  const mine = ++run;
  const large = tooLarge();
  const proof = large ? {status: 2, output: "", error: large} : runChosen("verify");
  const simulation = proof.status === 0 ? runChosen("simulate", "--format", "json") : null;
  const valid = simulation !== null && simulation.status === 0;
  const refused = proof.status !== 0 ? proof : simulation;
  const drawn = large ? "" : runChosen("schedule", "--format", "svg").output;
  const words = valid ? proof.output.trim() : "Refused";
  $("verdict").textContent = words;
  $("verdict").className = valid ? "good" : "bad";
  $("diagnosis").hidden = valid;
  $("diagnosis").textContent = valid ? "" : refused.error.trim();
  showFigures(valid ? JSON.parse(simulation.output) : null);
  showPicture(drawn, valid ? `Timeline of the schedule. ${words}` : `The part that runs. ${refused.error.trim()}`);
  const chosen = source();
  $("command").textContent = ["hetu", "simulate", ...chosen.words, ...optionWords(chosen.method)].join(" ");
  shown = {proof, simulation, svg: drawn, table: null};
  document.body.dataset.shown = String(mine);
  setTimeout(() => tabulate(mine), 0);
}

// Fills the table of all methods, one method at a time, so that the page stays responsive. Methods that search run last.
async function tabulate(mine) {
  const rows = [];
  $("table-state").textContent = "Simulating…";
  const order = [...about.methods].sort((a, b) => Number(a.by_costs) - Number(b.by_costs));
  for (const method of tooLarge() ? [] : order) {
    await new Promise(resume => setTimeout(resume, 0));
    if (mine !== run) return;
    const made = tool(["simulate", method.name, ...optionWords(method.name), "--format", "json"]);
    rows.push({method, made, figures: made.status === 0 ? JSON.parse(made.output) : null});
  }
  showTable(rows);
  shown.table = rows;
  document.body.dataset.tabulated = String(mine);
  $("table-state").textContent = "";
}

// Returns the time that the order goes by: of a step.
const timeOf = row => row.figures === null ? Infinity : row.figures.step_time;

function showTable(rows) {
  const sorted = rows.map((row, at) => ({row, at})).sort((a, b) => {
    const [x, y] = [timeOf(a.row), timeOf(b.row)];
    return x === y ? a.at - b.at : x - y;
  });
  $("table").tBodies[0].replaceChildren(...sorted.map(({row}) => rowOf(row)));
}

function rowOf({method, made, figures}) {
  const open = element("button", {type: "button", title: "Draw this method"}, method.name);
  open.addEventListener("click", () => change(() => { state.source = "method"; state.method = method.name; }));
  const mark = figures && "steps" in figures ? " *" : "";
  const line = element("tr", {"data-method": method.name}, element("td", {}, open, mark));
  if (state.source === "method" && state.method === method.name) line.className = "chosen";
  if (figures === null) {
    line.append(element("td", {class: "why", colspan: 4}, made.error.trim().replace(/^hetu simulate: /, "")));
  } else {
    for (const [key, value] of [["step_time", figures.step_time], ["makespan", figures.makespan],
                                ["bubble_fraction", figures.bubble_fraction], ["peak_activations", peakOf(figures)]])
      line.append(element("td", {"data-figure": key, "data-value": String(value)}, textOf(key, value)));
  }
  return line;
}

// ---- the search ---------------------------------------------------------------------------------------------------

function plannerWords() {
  const words = ["plan", "--costs", "costs.json", "--budget", PLANNER_BUDGET];
  for (const [name, value] of Object.entries(state.planner))
    if (value !== "") words.push(optionOf(name, about.plan).flag, value);
  return words;
}

// The model of the search: equal blocks, each with the times of the fields.
function plannerCosts() {
  const time = name => Number(state.values[name] || optionOf(name).default);
  const block = Object.fromEntries(["forward", "input_grad", "weight_grad", "recompute"].map(name => [name, time(name)]));
  const blocks = Array(PLANNER_BLOCKS).fill(block);
  return JSON.stringify({samples_per_micro_batch: 1, blocks, link: {latency: time("latency")}});
}

function searchPlan() {
  for (const [name, how] of Object.entries(LAYOUT.planner)) {
    if (!how.most || Number(state.planner[name]) <= how.most) continue;
    $("search-state").textContent = `${title(optionOf(name, about.plan))}: the playground takes up to ${how.most}.`;
    return;
  }
  $("search-state").textContent = "Searching…";
  setTimeout(() => {
    const found = tool(plannerWords(), {"costs.json": plannerCosts()});
    $("plan").hidden = false;
    $("plan").textContent = (found.output + found.error).trim();
    $("search-state").textContent = found.status === 0 ? "Found." : "No plan.";
  }, 30);
}

// ---- downloads ----------------------------------------------------------------------------------------------------

const DOWNLOADS = {
  svg: {name: "svg", type: "image/svg+xml", make: () => runChosen("schedule", "--format", "svg")},
  csv: {name: "csv", type: "text/csv", make: () => runChosen("schedule", "--format", "csv")},
  torch: {name: "torch.csv", type: "text/csv", make: () => runChosen("schedule", "--format", "torch")},
  json: {name: "json", type: "application/json", make: () => runChosen("schedule", "--format", "json")},
  figures: {name: "figures.json", type: "application/json", make: () => runChosen("simulate", "--format", "json")},
};

function download(kind) {
  const how = DOWNLOADS[kind], made = how.make();
  $("download-error").textContent = made.output === "" ? made.error.trim() : "";
  if (made.output === "") return;
  const link = element("a", {download: `${state.source === "own" ? "own" : state.method}.${how.name}`,
                             href: URL.createObjectURL(new Blob([made.output], {type: how.type}))});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// ---- start --------------------------------------------------------------------------------------------------------

async function start() {
  try {
    core = await HetuCore();
    about = ask({about: true});
  } catch (error) {
    $("loading").textContent = `The schedule tools can't be loaded: ${error.message || error}. They need a browser with ` +
      "WebAssembly and its exceptions.";
    $("loading").className = "bad";
    return;
  }
  readAddress();
  makeControls();
  showControls();
  $("loading").hidden = true;
  update();
  document.body.dataset.ready = String(Math.round(performance.now()));  // milliseconds from opening to the first picture
}

start();

// The page of `heturun watch`. It asks the server beside it for the state of the job once a second, and not at all while it is
// hidden. All texts come from the job's run folder, so they are set as text and never as HTML.
"use strict";

const EVERY_MS = 1000, EVERY_OVER_MS = 5000, EVERY_LOST_MS = 3000;
const KEPT_LINES = 2000;

const $ = id => document.getElementById(id);
const curve = new Curve($("curve"), text => { $("curve-at").textContent = text; });
let state = null;
let timer = null;
let asks = false;  // a request is under way
let drawn = {points: "", workers: "", messages: "", words: "", logs: "", trace: "", log: ""};  // as JSON, to change the page only where it differs
let log = {name: null, next: null, isChosen: false, followsEnd: true};
let widthOfLog = 0;
let asked = 0;  // number of rounds, for tests

async function ask(path) {
  const answer = await fetch(path, {cache: "no-store"});
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

function set(id, text) {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
}

function make(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Returns whether a value differs from the one that was shown under this name before, and remembers it.
function isNew(name, value) {
  const text = JSON.stringify(value);
  if (drawn[name] === text) return false;
  drawn[name] = text;
  return true;
}

// ---- parts of the page --------------------------------------------------------------------------------------------

function showHead() {
  set("job", state.job);
  set("state", state.state);
  if ($("state").className !== `badge ${state.kind}`) $("state").className = `badge ${state.kind}`;
  set("command", state.command);
  const [done, total] = state.done;
  document.title = `${state.step ? `step ${state.step} · ` : ""}${state.state} · job ${state.job}`;
  $("bar").hidden = !total;
  if (total) {
    $("bar").max = total;
    $("bar").value = done;
  }
  set("connection", state.silent);
}

function showFigures() {
  set("step", state.step || "–");
  set("loss", state.loss || "–");
  set("rate", state.rate || "–");
  set("eta-label", state.alive ? "Time left" : "Ended");
  set("eta", (state.alive ? state.eta : state.ended) || "–");
  set("memory", state.memory || "–");
  const saved = state.checkpoint;
  set("checkpoint", saved ? `step ${saved[0]}` : "none");
  set("checkpoint-more", saved ? `${saved[1]}, in ${saved[2]}` : "");
}

function showFailure() {
  const failed = !state.alive && state.kind === "bad";
  $("failure").hidden = !failed;
  if (!failed || !isNew("words", [state.status, state.words, state.messages])) return;
  const last = state.messages.at(-1);
  set("failure-text", state.status === null ? "heturun was killed, so nothing says why. The last lines of the workers are below." :
    `${last ? last[1] : state.state} (exit status ${state.status})`);
  $("words").replaceChildren(...state.words.flatMap(([worker, end, lines]) => {
    const text = make("pre", lines.join("\n"));
    text.tabIndex = 0;
    text.setAttribute("aria-label", `Last lines of worker ${worker}`);
    return [make("p", `Worker ${worker} ${end}${lines.length ? ":" : "."}`), ...(lines.length ? [text] : [])];
  }));
}

function showWorkers() {
  if (!isNew("workers", state.workers)) return;
  const longest = Math.max(...state.workers.map(worker => worker.compute_s ?? 0));
  $("workers").tBodies[0].replaceChildren(...state.workers.map(worker => {
    const row = make("tr", undefined, /^(slow|stopped|was killed|exited|is )/.test(worker.state) ? "bad" : "");
    const name = make("th", worker.worker);
    name.scope = "row";
    row.append(name);
    for (const key of ["state", "step", "compute", "times", "memory", "row", "host", "pid", "does"]) {
      const cell = make("td", worker[key]);
      if (key === "compute" && worker.compute_s && longest) {
        const share = make("span", undefined, "share"), part = make("span");
        share.setAttribute("aria-hidden", "true");
        part.style.width = `${100 * worker.compute_s / longest}%`;
        share.append(part);
        cell.append(share);
      }
      row.append(cell);
    }
    return row;
  }));
  set("workers-note", !state.workers.length ? (state.alive ? "No worker has started yet." : "The job has no workers any more.") : state.measured ?
    "Of the usual: the time of computing, divided by that of workers with the same stages in other pipelines, or by the worker's own earlier time." :
    "Times of computing are measured in trainings after a few steps, if no host has more workers than cores (or with --slow-limit).");
}

function showMessages() {
  if (!isNew("messages", state.messages)) return;
  const list = $("messages"), atEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 4;
  list.replaceChildren(...state.messages.map(([when, text]) => {
    const line = make("li");
    line.append(make("time", when), text);
    return line;
  }));
  if (!state.messages.length) list.append(make("li", "None so far."));
  if (atEnd) list.scrollTop = list.scrollHeight;
}

function showTrace() {
  const {path, ready, version} = state.trace;
  if (!isNew("trace", [state.trace, state.alive])) return;
  const drawnFrom = `From ${path}. hetu timeline ${path} --step N draws other steps.`;
  set("timeline-note", ready ? `Drawing ${path} …` :
    path && state.alive ? `The job writes its trace, ${path}, at its end. Its last steps are then drawn here.` :
    path ? `The job has ended without its trace, ${path}.` :
    "This job records no trace. With --trace FILE.json (job.run(trace=…) in your own script), its last steps are drawn here at its end.");
  $("frame").hidden = true;
  if (!ready) return;
  $("timeline").onload = () => {
    $("frame").hidden = false;
    set("timeline-note", drawnFrom);
  };
  $("timeline").alt = "Timeline of the last steps, predicted and measured, with a row for each worker";
  $("timeline").onerror = async () => {
    set("timeline-note", `No timeline: ${(await (await fetch("timeline.svg")).text()).trim()}`);
  };
  $("timeline").src = `timeline.svg?${version}`;
}

function showDetails() {
  const rows = [["Began", state.began], ["Ended", state.ended], ["Run folder", state.path], ["Started in", state.directory],
                ["Host of heturun", state.host], ["Version of Hetu", state.version]].filter(([, text]) => text);
  if (isNew("details", rows)) $("details").replaceChildren(...rows.flatMap(([name, text]) => [make("dt", name), make("dd", text)]));
}

async function showCurve() {
  if (!isNew("points", state.points)) return;
  const {groups, points, not_numbers: wrong} = await ask("losses");
  curve.set(groups);
  const any = curve.groups.length > 0;
  $("curve").hidden = !any;
  $("curve-none").hidden = any && !wrong;
  set("curve-none", wrong ? `The loss isn't a number in ${wrong[2]} of ${points} points, from step ${wrong[0]} to step ${wrong[1]}.` :
    points ? "This job reports steps without a loss." :
    "No loss was reported yet. The training scripts report it; your own script does with hooks=[ht.hooks.Progress(steps)].");
  $("logarithmic").disabled = any && !curve.canBeLogarithmic;
  curve.draw();
}

// ---- the output ---------------------------------------------------------------------------------------------------

function showLogs() {
  if (!isNew("logs", state.logs)) return;
  $("log").replaceChildren(...state.logs.map(name => {
    const worker = name.match(/\d+/);
    const option = make("option", worker ? `worker ${worker[0]}` : "heturun");
    option.value = name;
    return option;
  }));
  const failed = state.words.length ? `worker-${state.words[0][0]}.log` : null;
  if (!log.isChosen || !state.logs.includes(log.name)) choose(state.logs.includes(failed) ? failed : state.logs[0] ?? null);
  if (log.name) $("log").value = log.name;
}

function choose(name) {
  if (name === log.name) return;
  log = {name, next: null, isChosen: log.isChosen, followsEnd: true};
  $("lines").replaceChildren();
  set("lines-note", "");
}

async function showLines() {
  const current = log;
  if (!current.name) {
    set("lines-note", "No worker has printed anything.");
    return;
  }
  const from = current.next === null ? "" : `&from=${current.next}`;
  const {lines, next, cut} = await ask(`log?of=${encodeURIComponent(current.name)}${from}`);
  if (log !== current) return;
  const box = $("lines");
  const again = current.next !== null && next < current.next;  // the file is another one
  if (cut || again) box.replaceChildren();
  current.next = next;
  if (cut) set("lines-note", `Earlier lines: heturun logs ${state.path}${/\d+/.test(current.name) ? ` ${current.name.match(/\d+/)[0]}` : ""}`);
  if (!lines.length) return;
  box.append(...lines.slice(-KEPT_LINES).map(([when, isError, text]) => {
    const line = make("div", undefined, isError ? "error" : "");
    if (when) line.append(make("time", when));
    line.append(isError ? `! ${text}` : text);
    return line;
  }));
  while (box.childElementCount > KEPT_LINES) box.firstElementChild.remove();
  if (log.followsEnd) box.scrollTop = box.scrollHeight;
}

// ---- the loop -----------------------------------------------------------------------------------------------------

async function round() {
  if (asks || document.hidden) return;
  asks = true;
  clearTimeout(timer);
  let after = EVERY_MS;
  try {
    state = await ask("state");
    showHead();
    showFigures();
    showFailure();
    showWorkers();
    showMessages();
    showTrace();
    showDetails();
    showLogs();
    await Promise.all([showCurve(), showLines()]);
    asked++;
    document.body.classList.remove("lost");
    if (!state.alive) after = EVERY_OVER_MS;
  } catch (error) {
    after = EVERY_LOST_MS;
    if (!document.body.classList.contains("lost"))
      set("connection", `No answer from heturun watch since ${new Date().toTimeString().slice(0, 8)}; what you see is of before.`);
    document.body.classList.add("lost");
    console.warn(error);
  }
  asks = false;
  timer = setTimeout(round, after);
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden) round();
});
$("lines").addEventListener("scroll", () => {
  const box = $("lines");
  if (box.clientWidth === widthOfLog) log.followsEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
});
new ResizeObserver(() => {
  widthOfLog = $("lines").clientWidth;
  if (log.followsEnd) $("lines").scrollTop = $("lines").scrollHeight;
}).observe($("lines"));
$("log").addEventListener("change", event => {
  log.isChosen = true;
  choose(event.target.value);
  showLines().catch(console.warn);
});
$("logarithmic").addEventListener("change", event => {
  curve.logarithmic = event.target.checked;
  curve.draw();
});
round();

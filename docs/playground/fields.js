// The fields of the playground: which options have one, and the controls of an option. The core names the options, their
// ranges and their choices. Read by playground.js.
"use strict";

// The layout: which options have a field, where, and how far their sliders go. `most` guards the browser, not the core.
const LAYOUT = {
  sizes: {
    stages: {from: 1, to: 16, most: 64}, micro_batches: {from: 1, to: 64, most: 512}, chunks: {from: 1, to: 8, most: 32},
  },
  costs: {
    forward: {from: 0, to: 5, step: 0.1}, input_grad: {from: 0, to: 5, step: 0.1}, weight_grad: {from: 0, to: 5, step: 0.1},
    latency: {from: 0, to: 3, step: 0.05}, memory_limit: {text: true},
  },
  others: {
    recompute: {}, update: {}, allreduce: {}, pairs: {most: 32}, concat: {}, steps: {most: 32}, pair_semantics: {},
    stage_replicas: {}, runtime_rule: {}, with_recompute: {}, split_backward: {}, send_slots: {}, speed: {}, slow: {},
    jitter: {}, seed: {},
  },
  planner: {workers: {start: "4", most: 32}, global_batch: {start: "16", most: 1024}, memory_limit: {text: true}},
};
const PLANNER_BLOCKS = 12;  // equal blocks of the model whose plan is searched
const PLANNER_BUDGET = "2";  // millions of simulated instructions
const START = {stages: "4", micro_batches: "8"};
const START_METHOD = "1f1b";
const NAMES = {
  stages: "Stages (workers)", micro_batches: "Micro-batches", chunks: "Chunks per worker", forward: "Forward (F)",
  input_grad: "Backward, gradient of inputs (I)", weight_grad: "Backward, gradient of weights (W)",
  latency: "Latency of a message",
  memory_limit: "Memory limit per worker", workers: "Workers", global_batch: "Samples per step",
};

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function title(option) {
  const text = NAMES[option.name] || dashed(option.name).replaceAll("-", " ");
  return text[0].toUpperCase() + text.slice(1);
}

// Returns the controls of an option: a check box, a list, or a field with a slider beside it.
function makeField(option, how, prefix, get, set) {
  const id = prefix + option.name, note = id + "-note";
  const box = element("div", {class: "field", "data-option": option.name});
  const read = [];  // functions that show the state
  if (option.type === "flag") {
    const check = element("input", {type: "checkbox", id, "aria-describedby": note});
    check.addEventListener("change", () => set(check.checked ? "1" : ""));
    read.push(() => { check.checked = get() !== ""; });
    box.classList.add("flag");
    box.append(element("label", {for: id}, check, " " + title(option)));
  } else if (option.choices) {
    const list = element("select", {id, "aria-describedby": note});
    for (const choice of option.choices) list.append(element("option", {value: choice}, choice));
    list.addEventListener("change", () => set(list.value === option.default ? "" : list.value));
    read.push(() => { list.value = get() || option.default; });
    box.append(element("label", {for: id}, title(option)), list);
  } else {
    const isNumber = !how.text && (option.type === "number" || option.type === "whole number");
    const input = element("input", {id, type: isNumber ? "number" : "text", "aria-describedby": note, autocomplete: "off",
                                    min: isNumber ? option.least : undefined, max: isNumber ? how.most : undefined,
                                    step: isNumber ? (option.type === "number" ? "any" : 1) : undefined});
    if (!START[option.name] && how.start === undefined) input.placeholder = option.default_text || "not set";
    input.addEventListener("input", () => set(input.value.trim()));
    read.push(() => { if (input.value.trim() !== get()) input.value = get(); });
    const pair = element("div", {class: "pair"});
    if (how.to !== undefined) {
      const slider = element("input", {type: "range", min: how.from, max: how.to, step: how.step || 1,
                                       "aria-label": title(option) + ", slider"});
      slider.addEventListener("input", () => set(slider.value));
      read.push(() => { slider.value = get() || option.default || how.from; });
      pair.append(slider);
    } else {
      pair.classList.add("single");
    }
    pair.append(input);
    box.append(element("label", {for: id}, title(option)), pair);
  }
  box.append(element("p", {class: "note", id: note}, option.doc));
  box.read = () => read.forEach(show => show());
  return box;
}

// The page: the form, its buttons, and what is shown of a run.
import { find } from "../page/drawing.js";
import { chosen, keep, offer, recall } from "./choices.js";
import { isAble, run, stop } from "./engine.js";
import { clear, showCurve, showEnd, showFailure } from "./results.js";

/** @typedef {import("./engine.js").Told} Told */

const button = (/** @type {string} */ id) => /** @type {HTMLButtonElement} */ (find(id));
const player = /** @type {HTMLIFrameElement} */ (find("played"));

/**
 * What the running command has written.
 * @type {{printed: string[], errors: string[], points: [number, number][], steps: number}}
 */
let output = { printed: [], errors: [], points: [], steps: 0 };

/** @param {string} text */
function state(text) {
  find("state").textContent = text;
}

/** @param {boolean} isRunning */
function showRunning(isRunning) {
  button("stop").disabled = !isRunning;
  document.title = isRunning ? "running: shardbook" : "Train in this page: shardbook";
}

/** @param {string} line @param {boolean} isError */
function show(line, isError) {
  (isError ? output.errors : output.printed).push(line);
  find("printed").textContent += `${line}\n`;
  const step = /^ *step +(\d+) +loss ([\d.]+)/.exec(line);
  if (!step) return;
  output.points.push([Number(step[1]), Number(step[2])]);
  find("end").hidden = false;
  showCurve(output.points, output.steps || output.points.length);
}

/** Takes back what was offered. */
function offerNothing() {
  for (const id of ["report-file", "record-file", "page-file"]) find(id).removeAttribute("href");
}

/**
 * Offers a file to be saved.
 * @param {string} id @param {string} text @param {string} type
 */
function offerFile(id, text, type) {
  const link = /** @type {HTMLAnchorElement & {file: Blob}} */ (find(id));
  URL.revokeObjectURL(link.href);
  link.file = new Blob([text], { type });
  link.href = URL.createObjectURL(link.file);
}

/** @param {Told} told */
function heard({ line, isError, code, report, milliseconds, record, page, failure }) {
  if (line !== undefined) show(line, Boolean(isError));
  if (failure !== undefined) {
    showFailure(failure);
    ended();
  }
  if (code !== undefined) {
    document.documentElement.dataset.code = String(code);
    const figures = report ? JSON.parse(report) : null;
    showEnd(code, figures, output.printed, output.errors);
    if (report) offerFile("report-file", report, "application/json");
    state(`The run took ${((milliseconds ?? 0) / 1000).toFixed(2)} s here` +
      (figures ? `, a step ${figures.milliseconds.toFixed(2)} ms.` : "."));
    /** @type {HTMLDetailsElement} */ (find("all-printed")).open = !figures && !code;
  }
  if (page !== undefined) {
    find("files").hidden = player.hidden = !page;
    if (page && record) {
      player.srcdoc = page;
      offerFile("record-file", record, "application/json");
      offerFile("page-file", page.replace('"plays framed"', '"plays"'), "text/html");
    }
    ended();
  }
}

function ended() {
  showRunning(false);
  document.documentElement.dataset.ended = "";
}

function train() {
  const { devices, words } = chosen();
  const trains = words[1] === "train";
  clear();
  keep();
  output = { printed: [], errors: [], points: [], steps: Number(words[words.indexOf("--steps") + 1]) };
  find("printed").textContent = "";
  find("all-printed").hidden = false;
  find("picture").hidden = player.hidden = find("files").hidden = true;
  offerNothing();
  delete document.documentElement.dataset.ended;
  state("running …");
  showRunning(true);
  run(devices, trains ? [...words, "--report", "/report.json", "--record", "/record.json"] : words, heard);
}

function start() {
  const able = isAble();
  find("choice").addEventListener("submit", (event) => {
    event.preventDefault();
    train();
  });
  find("stop").addEventListener("click", () => {
    stop();
    state("stopped");
    ended();
  });
  addEventListener("message", ({ source, data }) => {
    if (source === player.contentWindow && data.height) player.style.height = `${data.height + 20}px`;
  });
  addEventListener("hashchange", () => { if (recall()) train(); });
  offer(JSON.parse(find("chapters").textContent ?? ""));
  if (recall() && able) train();
}

start();

// The page: what is asked, in a form, in the address and as a command, and what is shown of the answer.
import { find, make } from "../page/drawing.js";
import { isAble, run, stop } from "../run/engine.js";
import { showCosts } from "./table.js";

/** @typedef {import("../run/engine.js").Told} Told */

/**
 * How chapters 08 and 09 divide a decoder: the chapter's number, or a variant of chapter 09.
 * @type {[string, string][]}
 */
const ways = [["08", "each cut alone (chapter 08)"], ["decoder-data-tensor", "data × tensor (09)"],
  ["decoder-fsdp-tensor", "fsdp × tensor (09)"], ["decoder-data-pipeline-tensor", "data × pipeline × tensor (09)"],
  ["decoder-expert-data", "data × experts (09)"], ["five", "five axes, with experts (09)"]];
const axes = /** @type {Record<string, string>} */ ({
  "decoder-data-tensor": "data,tensor", "decoder-fsdp-tensor": "data,tensor",
  "decoder-data-pipeline-tensor": "data,pipeline,tensor", "decoder-expert-data": "data,expert",
  five: "data,pipeline,context,expert,tensor" });
const kept = ["network", "way", "mesh", "devices", "batch", "length", "memory", "rate", "link"];

const input = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (find(id));
const number = (/** @type {string} */ id) => Number(input(id).value);

/** @type {Record<string, object>} */
const networks = JSON.parse(find("networks").textContent ?? "");

/**
 * What the running command has written.
 * @type {{printed: string[], errors: string[]}}
 */
let output = { printed: [], errors: [] };

/** The words of the command, but for where the config.json is. */
function words() {
  const way = input("way").value, mesh = input("mesh").value.trim();
  const isT5 = /"model_type":\s*"t5"/.test(input("config").value);
  return [way === "08" ? "08" : "09", "costs", ...(way === "08" ? [] : ["--variant", way]),
    ...(way !== "08" && mesh ? ["--mesh", mesh] : []), "--batch", input("batch").value, "--length", input("length").value,
    ...(isT5 ? ["--source-length", input("length").value] : [])];
}

function showCommand() {
  const [chapter, command, ...rest] = words();
  find("of-mesh").hidden = chapter === "08";
  input("mesh").placeholder = axes[input("way").value] ?? "";
  find("command").textContent =
    `./chapters/run ${chapter} ${command} --devices ${input("devices").value} --config config.json ${rest.join(" ")}`;
}

function takeNetwork() {
  input("config").value = JSON.stringify(networks[input("network").value], null, 1);
  showCommand();
}

/** Writes what is asked into the address; the config.json only where it is nobody's. */
function keep() {
  const given = new URLSearchParams(kept.filter((id) => input(id).value).map((id) => [id, input(id).value]));
  const own = input("config").value;
  if (own !== JSON.stringify(networks[input("network").value], null, 1)) given.set("config", own);
  try {
    history.replaceState(null, "", `#${given}`);
  } catch { /* a browser that lets no file have an address */ }
}

/** Fills the form as the address says. Whether it said something. */
function recall() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (![...kept, "config"].some((id) => given.has(id))) return false;
  if (networks[given.get("network") ?? ""]) input("network").value = given.get("network") ?? "";
  takeNetwork();
  for (const id of [...kept, "config"]) if (given.has(id) && id !== "network") input(id).value = given.get(id) ?? "";
  showCommand();
  return true;
}

/** @param {string} strong @param {string} text @param {string} [error] */
function say(strong, text, error = "") {
  find("verdict").className = error ? "wrong" : "";
  find("verdict").replaceChildren(make("strong", {}, strong), ` ${text}`);
  find("error").textContent = error;
  find("error").hidden = !error;
  find("end").hidden = false;
}

/** @param {Told} told */
function heard({ line, isError, code, milliseconds, failure }) {
  if (line !== undefined) (isError ? output.errors : output.printed).push(line);
  if (failure !== undefined) {
    say("The engine itself failed.", "This is a fault of the page or of the browser:", failure);
    ended();
  }
  if (code === undefined) return;
  document.documentElement.dataset.code = String(code);
  find("state").textContent = `Counted in ${((milliseconds ?? 0) / 1000).toFixed(1)} s.`;
  if (code) say("This cannot be counted.", "", output.errors.join("\n"));
  else showAll();
  ended();
}

function showAll() {
  const costs = JSON.parse(output.printed.join("\n"));
  const rates = { memory: number("memory") * 2 ** 30, operations: number("rate") * 1e12, bytes: number("link") * 1e9 };
  const [strong, text, formula] = showCosts(costs, number("devices"), JSON.parse(input("config").value), rates);
  say(strong, text);
  find("formula").textContent = formula;
  find("notes").textContent = ["In float32, four bytes a number, of a step after the first, with Adam. Nothing is recomputed. " +
    "“The rest” is activations and buffers at the moment when most memory is used. Seconds are bytes and operations " +
    "divided by these rates; a program can hide one behind the other.", ...output.errors].join(" ");
}

function ended() {
  input("stop").disabled = true;
  document.documentElement.dataset.ended = "";
}

function count() {
  keep();
  output = { printed: [], errors: [] };
  delete document.documentElement.dataset.ended;
  find("end").hidden = true;
  find("state").textContent = "counting …";
  input("stop").disabled = false;
  run(1, [...words(), "--devices", input("devices").value, "--config", "/data/config.json", "--json"], heard,
    { "config.json": input("config").value });
}

function start() {
  const able = isAble();
  find("network").replaceChildren(...Object.keys(networks).map((name) => make("option", { value: name }, name)));
  find("way").replaceChildren(...ways.map(([value, name]) => make("option", { value }, name)));
  find("network").addEventListener("change", takeNetwork);
  find("choice").addEventListener("input", showCommand);
  find("choice").addEventListener("submit", (event) => {
    event.preventDefault();
    count();
  });
  find("stop").addEventListener("click", () => {
    stop();
    find("state").textContent = "stopped";
    ended();
  });
  addEventListener("hashchange", () => { if (recall()) count(); });
  takeNetwork();
  recall();
  if (able) count();
}

start();

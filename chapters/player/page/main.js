// The page: which steps are shown, the address, keys and buttons.
import { find, make, withCommas } from "./drawing.js";
import { contextOf, numDevices, play, record } from "./record.js";
import { peak, stateAfter } from "./state.js";
import { showDevices } from "./devices.js";
import { showMessages } from "./messages.js";
import { drawTimeline, legend, markTimeline } from "./timeline.js";
import { showSource } from "./source.js";
import { arrive, forget, guess, isAsking, leave, showQuestion, showStop, skip, stepOfNext, stops, turnOff }
  from "./lesson.js";

/** @typedef {"device" | "axis" | "call" | "block"} Filter */
/** `step`: the one that is shown, the last of its group if `isFolded`. `stop`: of the tour. */
const view = {
  step: 0, isFolded: false, byClock: false, width: 0,
  /** @type {number | null} */
  stop: null,
  /** @type {Record<Filter, string>} */
  filters: { device: "", axis: "", call: "", block: "" },
};
const FOLDED = 60;
const last = play.steps.length - 1;
const facts = play.steps.map((step) => ({
  device: step.items.map(([device]) => String(device)),
  axis: [step.group === undefined ? "" : record.groups[step.group].name],
  call: [step.call ?? ""],
  block: [contextOf(step).block ?? ""],
}));
/** @type {Filter[]} */
const filters = ["device", "axis", "call", "block"];

const isBeside = document.documentElement.classList.contains("beside");
/** @param {import("./beside.js").Told} words */
const tell = (words) => parent.postMessage(words, "*");

// ---- What is shown -----------------------------------------------------------------------------------------
/** @param {number} step */
function matches(step) {
  return filters.every((name) => !view.filters[name] || facts[step][name].includes(view.filters[name]));
}

/**
 * The number of the group that a step is in.
 * @param {number} step
 */
function groupOf(step) {
  let group = play.groups.findIndex(([begin]) => begin > step);
  return group < 0 ? play.groups.length - 1 : group - 1;
}

/**
 * The first and the last step of a group.
 * @param {number} group @returns {[number, number]}
 */
function extentOf(group) {
  return [play.groups[group][0], (play.groups[group + 1]?.[0] ?? last + 1) - 1];
}

/**
 * What a step is part of. A message belongs to the stage that reads it.
 * @param {import("./record.js").Step} step
 */
function wordsOf(step) {
  const words = play.words[step.context];
  return step.call === "post_send" ? words.replace("stage", "to stage") : words;
}

/**
 * The sentences of the shown steps.
 * @type {HTMLElement[]}
 */
let listed = [];

function show() {
  const group = groupOf(view.step);
  const [from, to] = view.isFolded ? extentOf(group) : [view.step, view.step];
  const device = view.filters.device === "" ? null : Number(view.filters.device);
  const active = new Set(play.steps.slice(from, to + 1).flatMap((step) => step.items.map(([of]) => of)));
  const steps = from === to ? `step ${from} of ${last}` : `steps ${from}–${to} of ${last}`;
  const words = from === to ? wordsOf(play.steps[from]) : play.groups[group][1];
  find("where").textContent = [steps, words].filter(Boolean).join(" · ");
  if (from === to) find("sentence").innerHTML = find(`step${from}`).innerHTML;
  else find("sentence").innerHTML = play.groups[group][2];
  showMessages(from, to, active, view.width);
  showDevices(stateAfter(from, to), active, device, to);
  showSource(from, to, device);
  markTimeline(from, to);
  const slider = /** @type {HTMLInputElement} */ (find("slider"));
  slider.value = String(view.step);
  slider.setAttribute("aria-valuetext", find("where").textContent ?? "");
  find("fold").setAttribute("aria-pressed", String(view.isFolded));
  document.getElementById("report")?.classList.toggle("reached", to === last);
  for (const item of listed) item.classList.remove("now");
  listed = play.steps.slice(from, to + 1).map((_, i) => find(`step${from + i}`));
  for (const item of listed) item.classList.add("now");
  if (!isBeside) {
    showQuestion(show);
    showStop(view.stop);
  }
  writeAddress();
}

/**
 * Shows a step. A run beside another one asks for it instead: both are to show it.
 * @param {number} step
 */
function go(step) {
  if (isBeside) return tell({ step: Math.min(Math.max(step, 0), last) });
  view.step = Math.min(Math.max(step, 0), last);
  view.stop = null;
  if (view.isFolded) leave();
  else arrive(view.step);
  show();
}

/**
 * Shows a stop of the tour; null ends it.
 * @param {number | null} stop
 */
function tour(stop) {
  view.stop = stop === null ? null : Math.min(Math.max(stop, 0), stops.length - 1);
  if (view.stop !== null) {
    view.isFolded = false;
    view.step = stops[view.stop].step;
  }
  leave();
  show();
}

/** Begins the tour, or ends it. */
function tourOrNot() {
  if (stops.length && !isBeside) tour(view.stop === null ? 0 : null);
}

/** Asks the next question. */
function ask() {
  const step = stepOfNext(view.step);
  if (step === undefined || isBeside) return;
  view.isFolded = false;
  go(step);
  arrive(step, true);
  show();
}

/** Ends what asks or leads: a question, the tour, playing. */
function escape() {
  if (isAsking()) {
    skip();
    show();
  } else if (view.stop !== null) tour(null);
  else pause();
}

/**
 * The next step that the filters let through; in a folded run the next group.
 * @param {1 | -1} way
 */
function move(way) {
  if (view.stop !== null) {
    const at = view.stop + way;
    if (at >= 0 && at < stops.length) tour(at);
    return at >= 0 && at < stops.length;
  }
  let step = view.step;
  do {
    step = view.isFolded ? groupStep(groupOf(step) + way) : step + way;
  } while (step >= 0 && step <= last && !isWanted(step));
  if (step < 0 || step > last) return false;
  go(step);
  return true;
}

/**
 * The last step of a group; before the first and behind the last one there is none.
 * @param {number} group
 */
function groupStep(group) {
  return group < 0 ? -1 : group >= play.groups.length ? last + 1 : extentOf(group)[1];
}

/** @param {number} step */
function isWanted(step) {
  if (!view.isFolded) return matches(step);
  const [from, to] = extentOf(groupOf(step));
  for (let at = from; at <= to; ++at) if (matches(at)) return true;
  return false;
}

/**
 * To the beginning of the group before or after.
 * @param {1 | -1} way
 */
function moveGroup(way) {
  const group = Math.min(Math.max(groupOf(view.step) + way, 0), play.groups.length - 1);
  go(view.isFolded ? groupStep(group) : extentOf(group)[0]);
}

// ---- The address -------------------------------------------------------------------------------------------
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  view.isFolded = given.has("step") || given.has("tour") ? given.has("fold") : play.steps.length > FOLDED && !isBeside;
  view.byClock = given.get("by") === "clock";
  for (const name of filters) {
    const values = new Set(facts.flatMap((fact) => fact[name]));
    view.filters[name] = values.has(given.get(name) ?? "") ? given.get(name) ?? "" : "";
    const select = /** @type {HTMLSelectElement | null} */ (document.getElementById(`by-${name}`));
    if (select) select.value = view.filters[name];
  }
  /** @type {HTMLInputElement} */ (find("clock")).checked = view.byClock;
  const step = Math.trunc(Number(given.get("step") ?? 0)) || 0;
  view.step = Math.min(Math.max(step, 0), last);
  const stop = Math.trunc(Number(given.get("tour"))) - 1;
  view.stop = stops[stop] && !isBeside ? stop : null;
  if (view.stop !== null) view.step = stops[view.stop].step;
  if (view.isFolded) view.step = extentOf(groupOf(view.step))[1];
}

/** @type {number | undefined} */
let writing;

/** Soon, since browsers refuse an address that changes too often. */
function writeAddress() {
  if (isBeside) return;
  const words = [view.stop === null ? `step=${view.step}` : `tour=${view.stop + 1}`];
  for (const name of filters) if (view.filters[name]) words.push(`${name}=${encodeURIComponent(view.filters[name])}`);
  if (view.isFolded) words.push("fold");
  if (view.byClock) words.push("by=clock");
  clearTimeout(writing);
  writing = setTimeout(() => {
    try {
      history.replaceState(null, "", `#${words.join("&")}`);
    } catch { /* a browser that lets no file have an address */ }
  }, 200);
}

// ---- Keys and buttons --------------------------------------------------------------------------------------
/** @type {number | undefined} */
let playing;

function pause() {
  clearInterval(playing);
  playing = undefined;
  find("play-button").textContent = "▶ play";
}

function playOrPause() {
  if (playing !== undefined) return pause();
  if (view.step === last) go(0);
  playing = setInterval(() => { if (!move(1)) pause(); }, 1200);
  find("play-button").textContent = "❚❚ pause";
}

function fold() {
  view.isFolded = !view.isFolded;
  go(view.isFolded ? extentOf(groupOf(view.step))[1] : extentOf(groupOf(view.step))[0]);
}

const help = /** @type {HTMLDialogElement} */ (find("help"));
/** @type {Record<string, () => void>} */
const keys = {
  ArrowRight: () => move(1), ArrowLeft: () => move(-1), ArrowDown: () => moveGroup(1),
  ArrowUp: () => moveGroup(-1), Home: () => go(0), End: () => go(last), " ": playOrPause, f: fold,
  p: () => go(peak.step), "?": () => help.showModal(), t: tourOrNot, g: ask,
};

/** @param {KeyboardEvent} event */
function pressed(event) {
  const at = event.target instanceof Element ? event.target : document.body;
  if (help.open) {
    if (event.key === "?") help.close();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || at.closest("select, #filter input")) return;
  if (event.key === " " && at.closest("button, a, summary")) return;
  if (event.key === "Escape") return escape();
  if (isAsking() && /^[1-9]$/.test(event.key)) {
    guess(Number(event.key) - 1);
    return show();
  }
  if (isBeside) {
    if (event.key.length > 1 || event.key === "d") event.preventDefault();
    return tell({ key: event.key });
  }
  if (!(event.key in keys)) return;
  event.preventDefault();
  if (event.key !== " ") pause();
  keys[event.key]();
}

/**
 * A link or a bar that leads to a step.
 * @param {Event} event
 */
function clicked(event) {
  const to = event.target instanceof Element ? event.target.closest("[data-step], a[href^='#step=']") : null;
  if (!to) return;
  event.preventDefault();
  pause();
  view.isFolded = false;
  go(Number(to.getAttribute("data-step") ?? to.getAttribute("href")?.slice("#step=".length)));
}

/**
 * The choices of a filter, if there are several.
 * @param {Filter} name
 */
function choices(name) {
  const values = [...new Set(facts.flatMap((fact) => fact[name]))].filter(Boolean)
    .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  if (values.length < 2) return [];
  const select = make("select", { id: `by-${name}` }, make("option", { value: "" }, "all"),
    ...values.map((value) => make("option", { value }, value)));
  select.addEventListener("change", () => {
    view.filters[name] = select.value;
    redraw();
  });
  return [make("label", {}, name, select)];
}

/** Draws all, in the room that there is. */
function redraw() {
  drawTimeline(view.byClock, matches);
  view.width = Math.max(find("messages").clientWidth, 200);
  show();
}

function start() {
  const clock = /** @type {HTMLInputElement} */ (find("clock"));
  find("filter").prepend(...filters.flatMap(choices));
  find("legend").replaceChildren(...legend());
  find("slider").setAttribute("max", String(last));
  find("peak").textContent = `peak: ${withCommas(peak.bytes)} bytes` +
    (numDevices === 1 ? "" : peak.isOnAll ? " on each device" : ` on device ${peak.device}`);
  /** @type {[string, string, (event: Event) => void][]} */
  const listeners = [
    ["back", "click", () => { pause(); move(-1); }], ["next", "click", () => { pause(); move(1); }],
    ["play-button", "click", playOrPause], ["fold", "click", fold], ["ask", "click", () => help.showModal()],
    ["tour", "click", () => { pause(); tourOrNot(); }], ["guess", "click", () => { pause(); ask(); }],
    ["off", "change", () => { turnOff(/** @type {HTMLInputElement} */ (find("off")).checked); show(); }],
    ["forget", "click", () => { forget(); show(); }],
    ["peak", "click", () => { pause(); view.isFolded = false; go(peak.step); }],
    ["slider", "input", (event) => { pause(); go(Number(/** @type {HTMLInputElement} */ (event.target).value)); }],
    ["clock", "change", () => { view.byClock = clock.checked; redraw(); }]];
  for (const [id, kind, listener] of listeners) find(id).addEventListener(kind, listener);
  document.addEventListener("keydown", pressed);
  document.addEventListener("click", clicked);
  addEventListener("hashchange", () => { clearTimeout(writing); readAddress(); redraw(); });
  addEventListener("resize", redraw);
  find("all").removeAttribute("open");
  readAddress();
  redraw();
  if (isBeside) standBeside();
  if (parent !== window) new ResizeObserver(() => tell({ height: document.body.offsetHeight })).observe(document.body);
}

/** Does what the page of two runs says, and tells it what it must know. */
function standBeside() {
  const introduce = () => tell({ last, height: document.body.offsetHeight });
  addEventListener("message", ({ data }) => {
    if (data.asks) return introduce();
    view.step = Math.min(data.step, last);
    find("now").classList.toggle("differs", data.differs);
    show();
  });
  introduce();
}

if (play.steps.length) start();

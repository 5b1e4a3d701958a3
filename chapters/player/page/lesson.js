// What a chapter teaches with its run, as its tour.txt has it: questions before a step is told, and a tour.
import { find, make } from "./drawing.js";
import { numDevices, play, record } from "./record.js";

/**
 * @typedef {{step: number, question: string, why: string, choices: string[], answer: number, formula: string}}
 *   Question
 */
/** @typedef {{step: number, lights: string[], text: string}} Stop */

/** @type {Question[]} */
const questions = play.lesson.questions;
/** @type {Stop[]} */
export const stops = play.lesson.stops;

const OPEN = -1, SKIPPED = -2;
const { folder = "", chapter = "", variant = "" } = record.job;
const KEPT = `shardbook:${folder}:${variant}:${numDevices}`, OFF = "shardbook:tells";

/**
 * What a stop of the tour lights up.
 * @type {Record<string, string>}
 */
const LIGHTS = {
  sentence: "#now", source: "#source", messages: "#messages", devices: "#devices h3, .under-way",
  memory: ".memory, .total",
  letters: ".name small b", schedule: "#timeline", parameters: ".purpose.parameters", gradients: ".purpose.gradients",
  optimizer: ".purpose.optimizer", activations: ".purpose.activations" };

/** @param {string} key */
function kept(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;  // a browser without storage
  }
}

/** @param {string} key @param {string} value */
function keep(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch { /* the score lives as long as the page */ }
}

/** For each question the choice, or that it is open or was skipped. */
const guesses = questions.map((_, number) => {
  const given = Number((kept(KEPT) ?? "").split(",")[number] || OPEN);
  return Number.isInteger(given) && given >= SKIPPED && given < questions[number].choices.length ? given : OPEN;
});
let isOff = kept(OFF) === "yes";

/**
 * The question that is asked, and the one whose answer is shown; -1 for none.
 */
let asked = -1, told = -1;

export function isAsking() {
  return asked >= 0;
}

/**
 * The step of the next open question, from a step on.
 * @param {number} step
 */
export function stepOfNext(step) {
  const open = questions.filter((_, number) => guesses[number] === OPEN);
  return (open.find((question) => question.step >= step) ?? open[0])?.step;
}

/**
 * The reader has come to a step: a question about it is asked, if one is open. `isWanted`: also if the switch is off.
 * @param {number} step @param {boolean} isWanted
 */
export function arrive(step, isWanted = false) {
  told = -1;
  asked = isOff && !isWanted ? -1 :
    questions.findIndex((question, number) => question.step === step && guesses[number] === OPEN);
}

/** No question. */
export function leave() {
  asked = told = -1;
}

/**
 * A guess, or that the question is skipped. A number that is no choice counts for nothing.
 * @param {number} choice
 */
export function guess(choice) {
  if (asked < 0 || choice >= questions[asked].choices.length) return;
  guesses[asked] = choice;
  told = choice === SKIPPED ? -1 : asked;
  asked = -1;
  keep(KEPT, guesses.join(","));
}

export function skip() {
  guess(SKIPPED);
}

/** @param {boolean} isTold */
export function turnOff(isTold) {
  isOff = isTold;
  keep(OFF, isOff ? "yes" : "no");
  if (isOff) leave();
}

/** All guesses are forgotten. */
export function forget() {
  guesses.fill(OPEN);
  keep(KEPT, "");
  leave();
}

/**
 * Puts the question, or the answer, in its place. `again` draws the page anew.
 * @param {() => void} again
 */
export function showQuestion(again) {
  const place = find("lesson");
  find("player").classList.toggle("guessing", asked >= 0);
  if (asked >= 0) {
    const { question, choices } = questions[asked];
    find("sentence").innerHTML = question;
    const button = (/** @type {string} */ words, /** @type {number} */ choice, /** @type {string} */ title) => {
      const made = make("button", { title }, words);
      made.addEventListener("click", () => { guess(choice); again(); });
      return made;
    };
    place.replaceChildren(...choices.map((words, choice) => button(words, choice, `key ${choice + 1}`)),
      button("skip", SKIPPED, "Esc"));
  } else if (told >= 0) {
    const { choices, answer, formula, why } = questions[told];
    const isRight = guesses[told] === answer;
    const words = make("span", {});
    words.innerHTML = why;
    place.replaceChildren(make("strong", { class: isRight ? "right" : "" },
      isRight ? `✓ ${choices[answer]}.` : `You guessed ${choices[guesses[told]]}. It is ${choices[answer]}.`),
      ...(formula ? [make("code", {}, formula)] : []), words);
  } else {
    place.replaceChildren();
  }
  showScore();
}

/** How many guesses were right, and a code that says which. */
function showScore() {
  const made = guesses.filter((choice) => choice >= 0).length;
  const right = guesses.filter((choice, number) => choice === questions[number].answer).length;
  find("guess").hidden = find("tells").hidden = questions.length === 0;
  find("guess").textContent = `guess ${guesses.filter((choice) => choice !== OPEN).length}/${questions.length}`;
  find("score").hidden = made === 0;
  find("right").textContent = `${right} of ${made} right`;
  find("code").textContent = codeOf();
  /** @type {HTMLInputElement} */ (find("off")).checked = isOff;
}

/**
 * The code to hand in: a letter for each question, the choice, capital if it was right; - if it was skipped, _ if it
 * is open. The last three figures tell a mistyped code.
 */
function codeOf() {
  const letter = (/** @type {number} */ choice, /** @type {number} */ number) =>
    choice === OPEN ? "_" : choice === SKIPPED ? "-" :
      choice === questions[number].answer ? "ABCDEFGH"[choice] : "abcdefgh"[choice];
  const words = `${chapter || folder}.${variant}.${numDevices}.${guesses.map(letter).join("")}`;
  return `${words}.${checkOf(words)}`;
}

/** @param {string} words */
function checkOf(words) {
  let sum = 0;
  for (const character of words) sum = (31 * sum + character.charCodeAt(0)) % 997;
  return String(sum).padStart(3, "0");
}

/**
 * What a stop lights up.
 * @type {Element[]}
 */
let lit = [];

/**
 * A stop of the tour: its sentence in the place of the step's, which stands below; what it is about is lit up.
 * @param {number | null} stop
 */
export function showStop(stop) {
  for (const one of lit) one.classList.remove("lit");
  lit = [];
  find("tour").hidden = stops.length === 0;
  find("tour").setAttribute("aria-pressed", String(stop !== null));
  if (stop === null) return;
  const { text, lights } = stops[stop];
  const step = make("span", {});
  step.innerHTML = find("sentence").innerHTML;
  find("lesson").replaceChildren(step);
  find("sentence").innerHTML = text;
  find("where").textContent = `tour ${stop + 1} of ${stops.length} · ${find("where").textContent}`;
  lit = lights.flatMap((light) => [...document.querySelectorAll(LIGHTS[light])]);
  for (const one of lit) one.classList.add("lit");
}

// What the reader chooses: the fields of the form, the words of the command, and the address, which says the same.
import { find, make } from "../page/drawing.js";

/** @typedef {{initial: string, expected: string, type: string, help: string, is_size?: boolean}} Option */
/**
 * @typedef {{name: string, summary: string, workload: string, network_options: Record<string, Option>,
 *   options: Record<string, Option>, steps: number, batch: number}} Variant
 */
/** @typedef {{folder: string, number: string, title: string, variants: Variant[]}} Chapter */

/**
 * What all chapters that train have, in this order.
 * @param {Variant} variant @returns {Record<string, Option>}
 */
const training = ({ steps, batch }) => ({
  "--steps": { initial: String(steps), expected: "", type: "N", help: "Optimizer steps" },
  "--batch": { initial: String(batch), expected: "", type: "N", help: "Rows of the global batch" },
  "--optimizer": { initial: "adam", expected: "", type: "NAME", help: "adam, sgd or integer" },
  "--learning-rate": { initial: "0.003", expected: "", type: "X", help: "Step size" },
});
const lists = /** @type {Record<string, string[]>} */ ({
  "--optimizer": ["adam", "sgd", "integer"], "--precision": ["float32", "tf32", "bf16"] });
const others = /** @type {Record<string, Option>} */ ({
  "--precision": { initial: "float32", expected: "", type: "NAME", help: "How products round their operands" },
  "--clip-norm": { initial: "", expected: "", type: "X", help: "The largest norm of all gradients together" },
  "--seed": { initial: "0", expected: "", type: "N", help: "Of the weights and of the data" },
});
const examples = /** @type {Record<string, string>} */ ({ 10: "--help" });  // of a chapter without variants

/** @type {Chapter[]} */
let chapters = [];

const input = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (find(id));
const chapterNow = () => chapters.find(({ number }) => number === input("chapter").value) ?? chapters[0];

/** The variant that is chosen; none in a chapter without any. */
function variantNow() {
  const { variants } = chapterNow();
  return variants.find(({ name }) => name === input("variant").value) ?? variants[0];
}

/** @param {string} name @param {Option} option */
function field(name, option) {
  const values = lists[name];
  const attributes = { "data-option": name, placeholder: option.initial, title: option.help };
  const element = values ? make("select", attributes, ...values.map((value) => make("option", { value }, value))) :
    make("input", { ...attributes, type: "text", spellcheck: "false" });
  const isWide = ["--mesh", "--stages", "words"].includes(name);
  return make("label", { title: option.help, class: isWide ? "wide" : null },
    name === "words" ? "words" : name.replace("--", "").replaceAll("-", " "), element);
}

/** The fields of a chapter's variant. What was typed before stays, where the field does. */
function showOptions() {
  const variant = variantNow();
  const before = typed();
  const network = Object.entries(variant?.network_options ?? {}).filter(([name]) => name !== "--data");
  const shown = variant ? { ...training(variant), ...Object.fromEntries(network.filter(([, one]) => one.is_size)),
    ...variant.options } : { words: { initial: "", expected: "", type: "", help: "What the chapter is given" } };
  const hidden = variant ? { ...Object.fromEntries(network.filter(([, one]) => !one.is_size)), ...others } : {};
  const fields = (/** @type {Record<string, any>} */ options) =>
    Object.entries(options).map(([name, option]) => field(name, option));
  find("options").replaceChildren(...fields(shown));
  find("others").replaceChildren(...fields(hidden));
  find("more").hidden = find("faults").hidden = find("variants").hidden = !variant;
  find("summary").textContent = variant?.summary ?? "This chapter has a program of its own, and trains nothing.";
  for (const [name, value] of Object.entries(before)) fill(name, value);
  if (!variant && !before.words) fill("words", examples[chapterNow().number] ?? "");
  showCommand();
}

/** What is typed, by option. @returns {Record<string, string>} */
function typed() {
  const fields = /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("[data-option]"));
  return Object.fromEntries([...fields].filter(({ value }) => value.trim())
    .map((one) => [one.dataset.option ?? "", one.value.trim()]));
}

/** @param {string} name @param {string} value */
function fill(name, value) {
  const element = /** @type {HTMLInputElement | null} */ (document.querySelector(`[data-option="${name}"]`));
  if (element) element.value = value;
}

function showVariants() {
  find("variant").replaceChildren(...chapterNow().variants.map(({ name }) => make("option", { value: name }, name)));
  showOptions();
}

/** The number of devices, and the words of the command. */
export function chosen() {
  const variant = variantNow(), { words = "", ...options } = typed();
  const given = Object.entries(options).filter(([name, value]) => !(lists[name] && lists[name][0] === value));
  const fault = input("fault-kind").value;
  const planted = ["--fault", `device=${input("fault-device").value},call=${input("fault-call").value},kind=${fault}`];
  return {
    devices: Number(input("count").value),
    words: [chapterNow().number, ...(variant ? ["train", "--variant", variant.name, ...given.flat(),
      ...(fault ? planted : [])] : words.split(/\s+/).filter(Boolean))],
  };
}

/** Shows the command as one types it in a shell. */
function showCommand() {
  const { devices, words: [chapter, ...words] } = chosen();
  find("command").textContent = `./chapters/run ${chapter} -n ${devices} ${words.join(" ")}`.trim();
}

/** Writes the choice into the address. */
export function keep() {
  const { devices, words: [chapter, ...words] } = chosen();
  const text = [chapter, "-n", devices, ...words].map((word) => encodeURIComponent(word).replaceAll("%2C", ",")
    .replaceAll("%3D", "=")).join("+");
  try {
    history.replaceState(null, "", `#${text}`);
  } catch { /* a browser that lets no file have an address */ }
}

/**
 * Fills the form as the address says: #03+-n+4+train+--variant+sequence. Whether it said something.
 */
export function recall() {
  const words = location.hash.slice(1).split("&")[0].split("+").map(decodeURIComponent);
  const chapter = chapters.find(({ number, folder }) => words[0] && (number === words[0] || folder === words[0]));
  if (!chapter) return false;
  input("chapter").value = chapter.number;
  showVariants();
  /** @type {string[]} */
  const rest = [];
  for (const name of Object.keys(typed())) if (!lists[name]) fill(name, "");
  input("fault-kind").value = "";
  for (let at = 1; at < words.length; ++at) {
    const value = words[at + 1] ?? "";
    if (words[at] === "-n") input("count").value = value;
    else if (!chapter.variants.length) rest.push(words[at]);
    else if (words[at] === "--variant") take("variant", value);
    else if (words[at] === "--fault") takeFault(value);
    else if (!words[at].startsWith("--")) continue;  // the command
    else fill(words[at], value);
    if (words[at].startsWith("-") && (words[at] === "-n" || chapter.variants.length)) ++at;
  }
  if (rest.length) fill("words", rest.join(" "));
  showCommand();
  return true;
}

/** @param {string} id @param {string} value */
function take(id, value) {
  input(id).value = value;
  showOptions();
}

/** @param {string} text device=1,call=6,kind=skip */
function takeFault(text) {
  for (const [name, value] of text.split(",").map((part) => part.split("="))) input(`fault-${name}`).value = value;
  /** @type {HTMLDetailsElement} */ (find("faults")).open = true;
}

/** @param {Chapter[]} all */
export function offer(all) {
  chapters = all;
  find("chapter").replaceChildren(...all.map(({ number, title }) =>
    make("option", { value: number }, `${number} ${title}`)));
  input("chapter").value = "03";
  find("chapter").addEventListener("change", showVariants);
  find("variant").addEventListener("change", showOptions);
  find("choice").addEventListener("input", showCommand);
  showVariants();
}

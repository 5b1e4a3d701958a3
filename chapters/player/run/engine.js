// The engine: a WebAssembly module that is in the page. Each command runs in a worker of its own, so that the page
// stays alive, and so that it can be stopped.
import { find } from "../page/drawing.js";

/**
 * What the worker says: a line of output, the end, the page of the record.
 * @typedef {{line?: string, isError?: boolean, code?: number, report?: string | null, milliseconds?: number,
 *   record?: string | null, page?: string | null, failure?: string}} Told
 */

/** What the browser lacks to run the engine; empty: nothing. */
function lacking() {
  if (!("DecompressionStream" in window)) return "streams that decompress";
  return "Suspending" in WebAssembly ? "" : "JavaScript Promise Integration for WebAssembly";
}

/** Whether the browser can run the engine. Where it cannot, the page says so, and its button is off. */
export function isAble() {
  const missing = lacking();
  find("lacks").hidden = !missing;
  if (missing)
    find("lacks").textContent = `This browser lacks ${missing}. Chrome can run the page from version 137 on, ` +
      "Firefox from 153 on, and Safari from 27 on. The command above does the same in a shell.";
  /** @type {HTMLButtonElement} */ (find("start")).disabled = Boolean(missing);
  return !missing;
}

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

/**
 * The bytes of a text in base 85: five digits are four bytes, and the last five may be cut short.
 * @param {string} text
 */
function bytesOf(text) {
  const values = new Uint8Array(128);
  for (let value = 0; value < 85; ++value) values[digits.charCodeAt(value)] = value;
  const words = new DataView(new ArrayBuffer(4 * Math.ceil(text.length / 5)));
  const whole = text.padEnd(5 * Math.ceil(text.length / 5), "~");
  for (let i = 0; i < whole.length; i += 5) {
    let word = 0;
    for (let k = i; k < i + 5; ++k) word = 85 * word + values[whole.charCodeAt(k)];
    words.setUint32(4 * i / 5, word);
  }
  return new Uint8Array(words.buffer, 0, Math.floor(4 * text.length / 5));
}

/** @param {string} id */
function inflated(id) {
  const inflating = new /** @type {any} */ (window).DecompressionStream("gzip");
  return new Response(new Blob([bytesOf(find(id).textContent ?? "")]).stream().pipeThrough(inflating));
}

/** @type {Promise<{module: WebAssembly.Module, source: string}> | undefined} */
let loading;

/** The module, and what a worker runs; made once. */
function loaded() {
  loading ??= (async () => {
    const [texts, bytes] = await Promise.all([inflated("texts").text(), inflated("module").arrayBuffer()]);
    const { program } = JSON.parse(texts);
    const source = URL.createObjectURL(new Blob([`const texts = ${texts};\n`, program], { type: "text/javascript" }));
    return { module: await WebAssembly.compile(bytes), source };
  })();
  return loading;
}

/** @type {Worker | undefined} */
let worker;

export function stop() {
  worker?.terminate();
  worker = undefined;
}

/**
 * Runs `shardbook WORDS` on so many devices. Whatever ran before is stopped. `files`: texts that lie in /data.
 * @param {number} devices @param {string[]} words @param {(told: Told) => void} heard
 * @param {Record<string, string>} [files]
 */
export async function run(devices, words, heard, files = {}) {
  stop();
  try {
    const { module, source } = await loaded();
    stop();
    const mine = worker = new Worker(source);
    mine.onmessage = ({ data }) => { if (worker === mine) heard(data); };
    mine.onerror = ({ message }) => heard({ failure: message });
    mine.postMessage({ module, devices, words, files });
  } catch (error) {
    heard({ failure: String(error) });
  }
}

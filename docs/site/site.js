// The search box, and the switch between light and dark. Works from file://, without a network.
"use strict";
(() => {
  const root = document.documentElement;
  const remember = (theme) => { try { localStorage.theme = theme; } catch { /* a browser that forgets */ } };
  const isDark = () => root.classList.contains("dark");
  let stored = null;
  try { stored = localStorage.theme; } catch { /* as above */ }
  const prefersDark = matchMedia("(prefers-color-scheme: dark)").matches;
  root.classList.toggle("dark", stored ? stored === "dark" : prefersDark);

  const load = (src) => new Promise((done) => {
    document.head.append(Object.assign(document.createElement("script"), { src, onload: done }));
  });
  let index = null;
  async function makeIndex() {
    await Promise.all([load("lunr.js"), load("search_index.js")]);
    return lunr(function () {
      this.field("title", { boost: 10 });
      this.field("asked", { boost: 10 });  // the words of people whose question a section answers
      this.field("text");
      searchIndex.forEach(([, title, text, asked], id) => this.add({ id, title, text, asked },
        { boost: asked ? 3 : text ? 1 : 0.2 }));  // a question's answer; a section; a name of the reference
    });
  }
  function find(lunrIndex, words) {
    return lunrIndex.query((query) => {
      words.filter((word) => word.length > 1).forEach((word) => query.term(lunr.tokenizer(word), { boost: 10 }));
      words.filter((word) => word.includes("_")).forEach((word) => {  // PyTorch's end in _ where titles do not
        query.term(word, { boost: 10, wildcard: lunr.Query.wildcard.TRAILING, usePipeline: false });
        query.term(lunr.tokenizer(word.replaceAll("_", " ")), { boost: 5 });
      });
      query.term(words.at(-1), { wildcard: lunr.Query.wildcard.TRAILING, usePipeline: false });  // is being typed
    }).slice(0, 20).map(({ ref }) => searchIndex[ref]);
  }
  function entry([url, title, text], words) {
    const link = Object.assign(document.createElement("a"), { href: url, textContent: title });
    const at = Math.max(0, text.toLowerCase().search(words[0].replace(/\W/g, ".").slice(0, 6)) - 40);
    const begin = at && text.indexOf(" ", at) + 1;  // of a word
    link.append(Object.assign(document.createElement("small"), { textContent: text.slice(begin, begin + 140) }));
    return link;
  }
  async function search(box, results) {
    const words = box.value.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter(Boolean);
    index ??= makeIndex();
    const found = words.length ? find(await index, words) : [];
    results.replaceChildren(...found.map((section) => entry(section, words)));
    if (words.length && !found.length) results.textContent = "Nothing found.";
  }

  document.addEventListener("DOMContentLoaded", () => {
    if (matchMedia("(max-width: 999px)").matches) document.querySelector("details.toc")?.removeAttribute("open");
    const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
    const box = make("input", { type: "search", placeholder: "Search", id: "search" });
    const results = make("div", { id: "results" });
    const theme = make("button", { textContent: "◐", title: "Light or dark" });
    theme.onclick = () => { root.classList.toggle("dark"); remember(isDark() ? "dark" : "light"); };
    box.oninput = () => search(box, results);
    box.onkeydown = ({ key }) => {
      if (key === "Enter") results.querySelector("a")?.click();
      if (key === "Escape") { box.value = ""; search(box, results); }
    };
    const tools = make("div", { id: "tools" });
    tools.append(box, theme, results);
    document.getElementById("top").prepend(tools);
    const asked = new URLSearchParams(location.search).get("q");  // a link may ask: index.html?q=megatron
    if (asked) { box.value = asked; search(box, results); }
  });
})();

// What translated Python has built in. Lists and tuples are arrays, and None is null.
const py = (() => {
  class Named { constructor(values) { Object.assign(this, values); } }
  class ValueError extends Error {}
  class KeyError extends ValueError {}
  class IndexError extends ValueError {}

  /** Keys are equal if they are lists of equal elements. */
  const keyOf = (key) => (Array.isArray(key) ? `\u0000${JSON.stringify(key)}` : key);

  class Dict {
    constructor(pairs = []) {
      this.entries = new Map();
      for (const [key, value] of pairs) this.set(key, value);
    }
    set(key, value) { this.entries.set(keyOf(key), [key, value]); }
    has(key) { return this.entries.has(keyOf(key)); }
    get(key, other = null) { return this.entries.get(keyOf(key))?.[1] ?? other; }
    missing(key) { throw new KeyError(String(key)); }
    at(key) { return this.entries.has(keyOf(key)) ? this.entries.get(keyOf(key))[1] : this.missing(key); }
    items() { return [...this.entries.values()]; }
    keys() { return this.items().map(([key]) => key); }
    values() { return this.items().map(([, value]) => value); }
    setdefault(key, value = null) {
      if (!this.has(key)) this.set(key, value);
      return this.at(key);
    }
    pop(key, ...other) {
      const value = this.has(key) || !other.length ? this.at(key) : other[0];
      this.entries.delete(keyOf(key));
      return value;
    }
    update(other) { for (const [key, value] of items(other)) this.set(key, value); }
    get size() { return this.entries.size; }
  }
  class DefaultDict extends Dict {
    constructor(make) { super(); this.make = make; }
    missing(key) { this.set(key, this.make()); return this.get(key); }
  }
  class PySet {
    constructor(values = []) { this.dict = new Dict(iter(values).map((value) => [value, true])); }
    has(value) { return this.dict.has(value); }
    add(value) { this.dict.set(value, true); }
    values() { return this.dict.keys(); }
    get size() { return this.dict.size; }
  }

  const iter = (all) => (Array.isArray(all) ? all : all instanceof Dict ? all.keys() :
    all instanceof PySet ? all.values() : [...all]);
  const items = (dict) => (dict instanceof Dict ? dict.items() : iter(dict));
  const len = (all) => all.length ?? all.size;
  const truth = (value) => (typeof value === "object" && value !== null ? (len(value) ?? 1) > 0 :
    Boolean(value));

  function equal(a, b) {
    if (a === b || (a == null && b == null)) return true;
    if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((one, i) => equal(one, b[i]));
    if (a instanceof Dict)
      return b instanceof Dict && a.size === b.size &&
        a.items().every(([key, value]) => b.has(key) && equal(value, b.get(key)));
    if (a instanceof PySet) return b instanceof PySet && a.size === b.size && a.values().every((one) => b.has(one));
    return false;
  }
  /** -1, 0, 1: lists are compared element by element. */
  function order(a, b) {
    if (!Array.isArray(a)) return a < b ? -1 : a > b ? 1 : 0;
    for (let i = 0; i < Math.min(a.length, b.length); ++i) {
      const one = order(a[i], b[i]);
      if (one) return one;
    }
    return a.length - b.length;
  }
  const has = (all, one) => (typeof all === "string" ? all.includes(one) :
    Array.isArray(all) ? all.some((other) => equal(one, other)) : all.has(one));
  function at(all, index) {
    if (all instanceof Dict) return all.at(index);
    if (all == null) throw new TypeError("None has no elements");
    const value = all[index < 0 ? all.length + index : index];
    if (value === undefined && !("index" in all)) throw new IndexError(`no element ${index}`);
    return value ?? null;
  }
  function set_at(all, index, value) {
    if (all instanceof Dict) all.set(index, value);
    else all[index < 0 ? all.length + index : index] = value;
  }
  const last = (args) => (args.at(-1) instanceof Named ? args.pop() : {});
  function extreme(sign, args) {
    const { key = (one) => one, ...named } = last(args);
    const all = args.length > 1 ? args : iter(args[0]);
    if (!all.length && "default" in named) return named.default;
    if (!all.length) throw new ValueError("nothing to choose of");
    let [best] = all;
    let bestKey = key(best);
    for (const one of all.slice(1)) {
      const oneKey = key(one);
      if (sign * order(oneKey, bestKey) > 0) [best, bestKey] = [one, oneKey];
    }
    return best;
  }

  function range(begin, end) {
    const [first, after] = end === undefined ? [0, begin] : [begin, end];
    return Array.from({ length: Math.max(after - first, 0) }, (_, i) => first + i);
  }
  /** To the nearest of so many digits; a tie goes to the even digit. */
  function round(value, digits = 0) {
    const [whole, rest] = Math.abs(value).toFixed(digits + 30).split(".");
    const isTie = /^50*$/.test(rest.slice(digits));
    const cut = Number(`${whole}.${rest.slice(0, digits)}`);
    const isEven = Number((whole + rest.slice(0, digits)).at(-1)) % 2 === 0;
    return Math.sign(value) * (isTie && isEven ? cut : Number(Math.abs(value).toFixed(digits)));
  }
  function str(value) {
    return value == null ? "None" : typeof value === "boolean" ? (value ? "True" : "False") : String(value);
  }
  function format(value, spec) {
    if (!spec) return str(value);
    if (spec === ",") return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
    const digits = /^\.(\d+)g$/.exec(spec);
    if (digits) return String(Number(Number(value).toPrecision(Number(digits[1]))));
    throw new ValueError(`a format that python.js does not know: ${spec}`);
  }

  const ofStrings = {
    join: (text, all) => iter(all).join(text),
    replace: (text, from, to) => text.replaceAll(from, to),
    capitalize: (text) => text.charAt(0).toUpperCase() + text.slice(1).toLowerCase(),
    removeprefix: (text, start) => (text.startsWith(start) ? text.slice(start.length) : text),
    endswith: (text, end) => text.endsWith(end),
    startswith: (text, start) => text.startsWith(start),
    format: (text, ...values) => text.replace(/\{\}/g, () => str(values.shift())),
    split: (text, by) => (by === undefined ? text.split(/\s+/).filter(Boolean) : text.split(by)),
  };
  const ofLists = {
    append: (all, one) => { all.push(one); },
    pop: (all, index = -1) => all.splice(index, 1)[0],
  };
  function call(owner, name, ...args) {
    const method = typeof owner === "string" ? ofStrings[name] : Array.isArray(owner) ? ofLists[name] : null;
    return method ? method(owner, ...args) : owner[name](...args);
  }

  const patternOf = (text, flags = "") => new RegExp(text.replaceAll("(?P<", "(?<"), flags);
  const re = {
    search: (pattern, text) => patternOf(pattern).exec(text),
    sub(pattern, to, text, named = {}) {
      const by = typeof to === "string" ? to.replace(/\\(\d)/g, "$$$1") : (...found) => to(found);
      return text.replace(patternOf(pattern, named.count === 1 ? "" : "g"), by);
    },
  };
  const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };
  const html = { escape: (text) => text.replace(/[&<>"']/g, (found) => escapes[found]) };
  /** JSON's objects as dicts. */
  function revived(value) {
    if (Array.isArray(value)) return value.map(revived);
    if (value === null || typeof value !== "object") return value;
    return new Dict(Object.entries(value).map(([key, one]) => [key, revived(one)]));
  }
  /** Dicts as JSON's objects. */
  function plain(value) {
    if (Array.isArray(value)) return value.map(plain);
    if (!(value instanceof Dict)) return value;
    return Object.fromEntries(value.items().map(([key, one]) => [key, plain(one)]));
  }
  const json = {
    loads: (text) => revived(JSON.parse(text)),
    dumps: (value) => JSON.stringify(plain(value)),
  };

  const dict = (of = []) => new Dict(items(of));
  dict.fromkeys = (keys, value = null) => new Dict(iter(keys).map((key) => [key, value]));
  return {
    Dict, Named, ValueError, KeyError, IndexError, TypeError, AttributeError: TypeError, JSONDecodeError: SyntaxError,
    iter, items, len, truth, equal, has, at, set_at, range, round, str, format, call, re, html, json, dict, plain,
    and: (a, b) => (truth(a) ? b() : a), or: (a, b) => (truth(a) ? a : b()),
    add: (a, b) => (Array.isArray(a) ? [...a, ...b] : a + b),
    subtract: (a, b) => (a instanceof PySet ? new PySet(a.values().filter((one) => !b.has(one))) : a - b),
    multiply: (a, b) => (Array.isArray(a) ? Array(b).fill(a).flat() : a * b),
    divide: (a, b) => a / b, floor_divide: (a, b) => Math.floor(a / b), remainder: (a, b) => ((a % b) + b) % b,
    union: (a, b) => (a instanceof Dict ? new Dict([...a.items(), ...b.items()]) :
      new PySet([...a.values(), ...b.values()])),
    intersection: (a, b) => new PySet(a.values().filter((one) => b.has(one))),
    extend(a, b) { if (!Array.isArray(a)) return a + b; a.push(...iter(b)); return a; },
    update(a, b) { a.update(b); return a; },
    slice: (all, begin, end) => all.slice(begin ?? 0, end ?? undefined),
    is_one_of: (error, kinds) => kinds.some((kind) => error instanceof kind),
    all: (values) => iter(values).every(truth), any: (values) => iter(values).some(truth),
    defaultdict: (make) => new DefaultDict(make),
    enumerate: (all, first = 0) => iter(all).map((one, i) => [first + i, one]),
    filter: (by, all) => iter(all).filter(by ?? truth),
    float: Object.assign((text = 0) => Number(text), { is: "float" }), int: (text = 0) => Math.trunc(Number(text)),
    groupby(all, key) {
      const groups = [];
      for (const one of iter(all)) {
        if (!groups.length || !equal(groups.at(-1)[0], key(one))) groups.push([key(one), []]);
        groups.at(-1)[1].push(one);
      }
      return groups;
    },
    id: (object) => object,
    isinstance: (value, kind) => (kind === str ? typeof value === "string" : kind.isList ? Array.isArray(value) :
      value instanceof kind),
    list: Object.assign((all = []) => [...iter(all)], { isList: true }), tuple: (all = []) => [...iter(all)],
    map: (by, all) => iter(all).map((one) => by(one)), set: (all = []) => new PySet(all),
    max: (...args) => extreme(1, args), min: (...args) => extreme(-1, args),
    next(all, ...other) {
      if (typeof all.next !== "function") return all.length || !other.length ? all[0] : other[0];
      const { done, value } = all.next();
      return done ? other[0] : value;
    },
    getattr: (object, name) => object[name], setattr(object, name, value) { object[name] = value; },
    sorted(all, { key = (one) => one } = {}) { return [...iter(all)].sort((a, b) => order(key(a), key(b))); },
    sum: (all) => iter(all).reduce((sum, one) => sum + Number(one), 0),
    zip: (a, b) => iter(a).slice(0, iter(b).length).map((one, i) => [one, iter(b)[i]]),
  };
})();

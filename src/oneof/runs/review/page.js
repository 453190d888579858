"use strict";
const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token");
const tab = crypto.randomUUID();
const AHEAD = 3;
let cards = [], state = null, begun = 0, unsure = null, randomLeft = 0, sending = Promise.resolve(), run = null;

const stored = (name, fallback) => { try { return JSON.parse(localStorage.getItem(name)) ?? fallback; } catch { return fallback; } };
const store = (name, value) => { try { localStorage.setItem(name, JSON.stringify(value)); } catch { /* private windows have none */ } };
$("who").value = new URLSearchParams(location.search).get("who") || stored("oneof-who", "");
const who = () => $("who").value.trim();

async function call(path, body) {
  const query = new URLSearchParams(body === undefined ? { who: who(), tab } : {});
  const asked = body === undefined ? { headers: { "X-Token": token } } : { method: "POST", headers: { "X-Token": token, "Content-Type": "application/json" }, body: JSON.stringify({ who: who(), tab, ...body }) };
  const reply = await fetch(path + (path.includes("?") ? "&" : "?") + query, asked);
  const found = await reply.json();
  if (!reply.ok) throw Object.assign(new Error(found.error), { refused: true, wrong: reply.status === 400 });
  if (found.state) showState(found.state);
  return found;
}

function say(text) { $("status").textContent = text; }
function fail(error) {
  $("error").hidden = false;
  $("error").textContent = error.refused ? error.message : "The server does not answer. Start oneof review again and open its address; what you decided is kept here until then.";
}

/* One request after the other: an undo must not overtake the answer before it. */
function inTurn(work) {
  sending = sending.then(work).then(() => { $("error").hidden = true; }, fail);
  return sending;
}

/* Answers that no server has confirmed. They are kept in memory, too: some windows have no storage, and storage may be full. */
const unconfirmed = new Map();

function keepUnsent(entry) {
  unconfirmed.set(entry.answer.id, entry);
  store("oneof-unsent", [...stored("oneof-unsent", []), entry]);
}

function dropUnsent(id) {
  unconfirmed.delete(id);
  store("oneof-unsent", stored("oneof-unsent", []).filter((entry) => entry.answer.id !== id));
}

/* The port may have belonged to another run before: answers about its rows wait for a server of that run. */
function unsentOfThisRun() {
  const entries = new Map(stored("oneof-unsent", []).map((entry) => [entry.answer.id, entry]));
  for (const [id, entry] of unconfirmed) entries.set(id, entry);
  return [...entries.values()].filter((entry) => state.lineage.includes(entry.answer.run));
}

async function flush() {
  if (state === null) await call("/api/state");
  for (const entry of unsentOfThisRun()) {
    try {
      const reply = await call("/api/decide", { answer: entry.answer, who: entry.who });
      if (reply.note) say(reply.note);
    } catch (error) {
      if (!error.wrong) throw error; // it is kept until a server takes it
      fail(error);
    }
    dropUnsent(entry.answer.id);
  }
}

async function fill() {
  if (cards.length >= AHEAD) return;
  const random = randomLeft > cards.length ? 1 : 0;
  const found = await call(`/api/next?count=${AHEAD - cards.length}&random=${random}`);
  cards.push(...found.cards.filter((one) => !cards.some((old) => old.row === one.row)));
  if (begun === 0 || $("card").hidden) show();
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function show() {
  const card = cards[0];
  unsure = null;
  $("card").hidden = !card;
  $("empty").hidden = Boolean(card);
  $("typed").hidden = true;
  $("label").value = "";
  if (!card) return;
  begun = performance.now();
  $("title").textContent = `Row ${card.row}`;
  showItem(card);
  $("candidates").replaceChildren(...card.candidates.map((one, k) => candidate(one, k)));
  $("outside").textContent = card.outside ? `The model is sure of ${card.outside}, which is not in the set.` : "";
  $("near").hidden = card.near.length === 0;
  $("near").querySelector("ul").replaceChildren(...card.near.map((one) => element("li", `${one.label}: row ${one.row} ${one.item}`)));
  showUnsure();
  const first = card.candidates[0];
  say(`Row ${card.row}. Suggested: ${first.label}, ${percent(first.probability)}.`);
}

function showItem(card) {
  const list = element("dl");
  for (const [name, text] of card.item) list.append(element("dt", name), element("dd", text));
  const pictures = card.pictures.map((column) => {
    const made = element("img");
    made.alt = `${column} of row ${card.row}`;
    made.src = `/picture?${new URLSearchParams({ row: card.row, column, token })}`;
    return made;
  });
  $("item").replaceChildren(...pictures, list);
}

const percent = (share) => `${Math.round(100 * share)} %`;

function candidate(one, k) {
  const item = element("li"), button = element("button");
  button.type = "button";
  button.append(element("kbd", k < 9 ? String(k + 1) : ""), element("span", one.label, "name"), element("span", percent(one.probability)));
  const meter = element("meter");
  meter.value = one.probability;
  meter.setAttribute("aria-hidden", "true");
  button.append(meter);
  const votes = one.votes ? `${Math.round(100 * one.votes) / 100} votes. ` : "";
  if (votes || one.fell) button.append(element("span", votes + (one.fell || ""), "why"));
  if (k < 9) button.setAttribute("aria-keyshortcuts", String(k + 1));
  button.addEventListener("click", () => choose(k));
  item.append(button);
  return item;
}

function choose(k) {
  const card = cards[0];
  if (!card || k >= card.candidates.length) return;
  if (unsure) {
    if (unsure.has(k)) unsure.delete(k); else unsure.add(k);
    showUnsure();
  } else decide("label", [card.candidates[k].label]);
}

function showUnsure() {
  $("unsure").setAttribute("aria-pressed", String(unsure !== null));
  [...$("candidates").children].forEach((item, k) => item.classList.toggle("out", Boolean(unsure && unsure.has(k))));
  $("question").textContent = unsure ? "Strike out what it is not; Enter sends what is left." : "Which label is right?";
  $("accept").firstChild.textContent = unsure ? "Send what is left " : "Take the suggestion ";
}

function accept() {
  const card = cards[0];
  if (!card) return;
  if (!unsure) return decide("label", [card.suggested]);
  const left = card.candidates.map((one) => one.label).filter((_, k) => !unsure.has(k));
  if (left.length) decide("set", left); else say("Nothing is left: press X for none of these.");
}

function decide(kind, labels) {
  const card = cards.shift();
  if (!card) return;
  const seconds = Math.round((performance.now() - begun) / 100) / 10;
  const answer = { id: crypto.randomUUID(), row: card.row, kind, labels, run: card.run, drawn: card.drawn, seconds };
  keepUnsent({ who: who(), answer });
  if (randomLeft > 0) randomLeft -= 1;
  show();
  inTurn(async () => { await flush(); await fill(); });
}

function undo() {
  inTurn(async () => {
    await flush();
    const found = await call("/api/undo", {});
    if (!found.card) return say("There is nothing to undo.");
    cards = [found.card, ...cards.filter((one) => one.row !== found.card.row)];
    show();
    say(`Undone: row ${found.card.row} is asked again.`);
  });
}

function none() {
  unsure = null;
  showUnsure();
  $("typed").hidden = false;
  $("label").focus();
}

function cancel() {
  unsure = null;
  $("typed").hidden = true;
  showUnsure();
  $("title").focus();
}

/* ------------------------------------------------------------------------------------------------------- the side */

function showState(now) {
  if (run !== null && run !== now.run) {
    cards = [];
    say("The model has learned again: here is its new order.");
    inTurn(fill);
  }
  state = now;
  run = now.run;
  $("folder").textContent = now.folder;
  $("who").placeholder = now.who;
  $("progress").textContent = `${now.decided.toLocaleString()} of ${now.rows.toLocaleString()} rows answered, ${now.mine.toLocaleString()} by you; ${now.to_ask.toLocaleString()} to ask.`;
  const a = now.accuracy, left = randomLeft ? ` ${randomLeft} random rows to go.` : "";
  $("accuracy").textContent = (a ? `${percent(a.right / a.rows)} of the model's labels are right (${percent(a.low)} to ${percent(a.high)}), by ${a.rows} random rows${a.unsure ? `, ${a.unsure} of them unsure` : ""}.` : "Not known yet: one row in five is drawn at random, and these will tell.") + left;
  const [equal, pairs] = now.agreement;
  $("agreement").textContent = pairs ? `Second answers to a row agree in ${equal} of ${pairs}.` : "";
  $("advice").textContent = now.advice;
  $("learn").disabled = now.learning.state === "running" || now.decided === 0;
  $("learning").textContent = now.learning.text;
  drawCurve(now.curve);
  if (now.learning.state === "running") setTimeout(() => call("/api/state").catch(fail), 1500);
}

function drawCurve(points) {
  $("curve").hidden = points.length < 2;
  if (points.length < 2) return;
  const svg = $("curve").querySelector("svg"), last = points[points.length - 1];
  const lowest = Math.floor(10 * Math.min(...points.slice(points.length >> 1).map((one) => one[2]))) / 10;
  const x = (count) => 36 + (259 * (count - points[0][0])) / Math.max(1, last[0] - points[0][0]);
  const y = (share) => 104 - (96 * (Math.max(share, lowest) - lowest)) / Math.max(0.1, 1 - lowest);
  const part = (name, given, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const along = (at) => points.map((one) => `${x(one[0]).toFixed(1)},${y(one[at]).toFixed(1)}`);
  $("curve-says").textContent = `After ${last[0]} decisions ${percent(last[1])} of the labels are right, ${percent(last[2])} to ${percent(last[3])}.`;
  svg.replaceChildren($("curve-says"),
    ...[lowest, 1].flatMap((share) => [part("line", { x1: 36, x2: 295, y1: y(share), y2: y(share), class: "axis" }), part("text", { x: 32, y: y(share) + 3, "text-anchor": "end", class: "tick" }, percent(share))]),
    part("text", { x: 36, y: 117, class: "tick" }, points[0][0]), part("text", { x: 295, y: 117, "text-anchor": "end", class: "tick" }, `${last[0]} decisions`),
    part("polygon", { points: [...along(3), ...along(2).reverse()].join(" "), class: "band" }), part("polyline", { points: along(1).join(" "), class: "line" }));
}

/* ------------------------------------------------------------------------------------------------------- the keys */

$("accept").addEventListener("click", accept);
$("unsure").addEventListener("click", () => { unsure = unsure ? null : new Set(); showUnsure(); });
$("none").addEventListener("click", none);
$("skip").addEventListener("click", () => decide("skip", []));
$("undo").addEventListener("click", undo);
$("undo-last").addEventListener("click", undo);
$("help-button").addEventListener("click", () => $("help").showModal());
$("typed").addEventListener("submit", (event) => {
  event.preventDefault();
  const label = $("label").value.trim();
  decide("none", label ? [label] : []);
  $("title").focus();
});
$("random").addEventListener("click", () => {
  randomLeft = 50;
  cards = [];
  inTurn(fill).then(show);
  $("title").focus();
});
$("learn").addEventListener("click", () => inTurn(() => call("/api/learn", {})));
$("person").addEventListener("submit", (event) => { event.preventDefault(); $("title").focus(); });
$("who").addEventListener("change", () => { store("oneof-who", who()); cards = []; inTurn(fill).then(show); });

const KEYS = { u: () => $("unsure").click(), x: none, s: () => decide("skip", []), z: undo, "?": () => $("help").showModal(), escape: cancel };
document.addEventListener("keydown", (event) => {
  if ($("help").open || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.matches("input")) { if (event.key === "Escape") cancel(); return; }
  const key = event.key.toLowerCase();
  if (/^[1-9]$/.test(key)) choose(Number(key) - 1);
  else if (key === "enter" && !event.target.matches("button, summary")) accept();
  else if (KEYS[key]) KEYS[key]();
  else return;
  event.preventDefault();
});

inTurn(async () => { await flush(); await fill(); show(); });

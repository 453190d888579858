"use strict";
const $ = (id) => document.getElementById(id);
const AHEAD = 3; // cards that are loaded beside the one that is shown, so that the next one is there at once
const RETRY_MS = 2000;
const POLL_MS = 1500; // between two questions whether the model has learned again
const KEYS_FOR_CANDIDATES = 9;
const COMPLETIONS = 8; // labels that are proposed while one is typed
const moved = takeMoved();
const token = takeToken();
let tab = crypto.randomUUID(); // by which the server knows which rows this page holds

let cards = []; // the rows that the server gave to this tab; the first is shown
let shown = null; // the card on the screen, which alone can be decided
let options = []; // its candidates in the order in which they are shown
let shownAt = Infinity; // when it appeared
let exhausted = false; // the server has no more rows for this tab
let connection = "up"; // or "down": no answer; "failing": it cannot save; "refused": a server that does not know this page's token
let problem = ""; // an answer that the server did not accept, until the next one
let unsure = null; // the candidates that are struck out, once the person is unsure
let randomLeft = 0; // rows to go of those drawn at random on request
let skippedLeft = 0; // rows to go of those skipped before
let goOn = false; // also ask about rows that are not doubtful
let state = null; // what the server said last about the run
let retryTimer = null;
let gridCards = null; // the rows of the grid, while it is shown
let gridAt = Infinity; // when the grid appeared
let wantsGrid = false; // false as soon as the person leaves it, even if its rows are still on their way
let sending = Promise.resolve();

/* ------------------------------------------------------------------------------------------------------- requests */

/* Answers that a page on another port could not send come behind the # of the address. They are stored once a server has accepted the
   token that comes with them: otherwise any site could put answers there. */
function takeMoved() {
  const moved = new URLSearchParams(location.hash.slice(1)).get("unsent");
  if (!moved || !new URLSearchParams(location.search).has("token")) return [];
  try {
    const entries = JSON.parse(moved);
    return entries.filter((entry) => typeof entry?.answer?.id === "string");
  } catch {
    return [];
  }
}

/* The token leaves the address bar, where it is easily copied or seen. This tab keeps it for a reload. */
function takeToken() {
  const address = new URLSearchParams(location.search);
  for (const name of ["token", "who"]) {
    if (address.has(name)) keepInTab(name, address.get(name));
  }
  if (address.has("token")) history.replaceState(null, "", "/");
  return address.get("token") ?? keptInTab("token") ?? "";
}

function keepInTab(name, value) {
  try {
    sessionStorage.setItem(`oneof-${name}`, value);
  } catch { /* without storage a reload needs the address again */ }
}

function keptInTab(name) {
  try {
    return sessionStorage.getItem(`oneof-${name}`);
  } catch {
    return null;
  }
}

function stored(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? fallback;
  } catch {
    return fallback;
  }
}

function store(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
  } catch { /* private windows have no storage */ }
}

$("who").value = keptInTab("who") || stored("oneof-who", "");
const who = () => $("who").value.trim();

async function call(path, body) {
  const options = { headers: { "X-Token": token } };
  let url = path;
  if (body === undefined) {
    url += (path.includes("?") ? "&" : "?") + new URLSearchParams({ who: who(), tab });
  } else {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify({ who: who(), tab, ...body });
  }
  const reply = await fetch(url, options);
  const content = await reply.json();
  if (!reply.ok) throw Object.assign(new Error(content.error), { status: reply.status });
  if (content.state) showState(content.state);
  return content;
}

/* One request after the other: an undo must not overtake the answer before it. */
function inTurn(work) {
  sending = sending.then(work).then(succeed, fail).then(render);
  return sending;
}

function succeed() {
  if (connection !== "up") problem = "";
  connection = "up";
}

function fail(error) {
  const noReply = error.status === undefined;
  if (noReply || error.status >= 500) {
    connection = noReply ? "down" : "failing";
    problem = error.message;
    retryTimer ??= setTimeout(retry, RETRY_MS);
  } else if (error.status === 403) {
    connection = "refused";
  } else {
    problem = error.message;
  }
}

function retry() {
  clearTimeout(retryTimer);
  retryTimer = null;
  inTurn(catchUp);
}

async function catchUp() {
  await flush();
  await fill();
  if (knownLabels.length === 0) {
    await loadLabels();
    await loadGuidelines();
  }
}

/* Answers that no server has confirmed. They are kept in memory, too: some windows have no storage, and storage may be full. */
const unconfirmed = new Map();
const answeredCards = new Map();

function keepUnsent(entry, card) {
  unconfirmed.set(entry.answer.id, entry);
  if (card) answeredCards.set(entry.answer.id, card);
  store("oneof-unsent", [...stored("oneof-unsent", []), entry]);
}

function dropUnsent(id) {
  unconfirmed.delete(id);
  answeredCards.delete(id);
  store("oneof-unsent", stored("oneof-unsent", []).filter((entry) => entry.answer.id !== id));
}

/* Go to the address that a server on another port printed, with the answers that wait here. */
function moveTo(text) {
  let address;
  try {
    address = new URL(text.trim());
  } catch {
    return announce("This is not an address: copy all of it.");
  }
  const isLocal = address.protocol === "http:" && ["127.0.0.1", "localhost"].includes(address.hostname);
  if (!isLocal || !address.searchParams.has("token")) return announce("The address must be one that oneof review printed.");
  const waiting = new Map(stored("oneof-unsent", []).map((entry) => [entry.answer.id, entry]));
  for (const [id, entry] of unconfirmed) waiting.set(id, entry);
  address.hash = new URLSearchParams({ unsent: JSON.stringify([...waiting.values()]) }).toString();
  location.assign(address);
}

/* The port may have belonged to another run before: answers about its rows wait for a server of that run. */
function unsentOfThisRun() {
  const entries = new Map(stored("oneof-unsent", []).map((entry) => [entry.answer.id, entry]));
  for (const [id, entry] of unconfirmed) entries.set(id, entry);
  return [...entries.values()].filter((entry) => state === null || state.lineage.includes(entry.answer.run));
}

async function flush() {
  if (state === null) await call("/api/state");
  for (const entry of moved.splice(0)) keepUnsent(entry, null);
  for (const entry of unsentOfThisRun()) {
    try {
      const reply = await call("/api/decide", { answer: entry.answer, who: entry.who });
      if (reply.note) announce(reply.note);
    } catch (error) {
      if (error.status !== 400) throw error; // it is kept until a server takes it
      problem = error.message;
      const card = answeredCards.get(entry.answer.id);
      if (card) cards.splice(shown ? 1 : 0, 0, card); // to be answered again
    }
    dropUnsent(entry.answer.id);
  }
}

async function fill() {
  if (cards.length >= AHEAD) return;
  const heldCards = [...cards, ...(gridCards ?? []), ...answeredCards.values()]; // the others are given back
  const query = new URLSearchParams({
    count: AHEAD - cards.length,
    pool: nextPool(),
    held: heldCards.map((card) => card.row).join(","),
    label: $("filter").value,
  });
  const reply = await call(`/api/next?${query}`);
  for (const card of reply.cards) {
    const isHere = cards.some((other) => other.row === card.row);
    if (!isHere) cards.push(card);
  }
  exhausted = cards.length === 0 && unsentOfThisRun().length === 0;
}

/* Rows from which the server chooses the next ones. */
function nextPool() {
  if (randomLeft > cards.length) return "random";
  if (skippedLeft > cards.length) return "skipped";
  return goOn || state.doubtful === 0 ? "all" : "doubtful";
}

/* Forget the cards, and load those that come now. */
function reload() {
  cards = [];
  exhausted = false;
  render();
  return inTurn(catchUp);
}

/* ------------------------------------------------------------------------------------------------------- the card */

function announce(text) { $("status").textContent = text; }

function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

/* Show the first card, or why there is none: it is loading, the server is away, or every row is answered. */
function render() {
  const card = gridCards ? null : (cards[0] ?? null);
  const waiting = card === null && !exhausted && !gridCards;
  $("grid").hidden = gridCards === null;
  $("card").hidden = card === null;
  $("loading").hidden = !(waiting && connection === "up");
  $("offline").hidden = !(waiting && connection !== "up");
  $("move").hidden = connection === "up" || connection === "failing";
  $("empty").hidden = !(card === null && exhausted && !gridCards);
  if (!$("empty").hidden) showEnd();
  showProblem();
  if (card === shown) return;
  shown = card;
  shownAt = Infinity;
  unsure = null;
  closeForms();
  if (gridCards) return;
  if (card === null) return announce(exhausted ? $("end-title").textContent : "");
  showCard(card);
  if (document.activeElement?.closest("#card")) leaveControls(); // a button of the card before
  shownAt = performance.now();
}

/* Say what is done, what is left for whom, and what to do next. */
function showEnd() {
  const filter = $("filter").value;
  $("any-label").hidden = filter === "";
  $("end-title").textContent = endTitle(filter);
  const lines = [];
  if (state.left === 0) lines.push("Every row is answered.");
  else if (state.to_ask === 0) lines.push(doubtfulRowsAnswered());
  if (state.skipped > 0) lines.push(`${count(state.skipped, "skipped row is", "skipped rows are")} left.`);
  if (state.elsewhere > 0 && !filter) {
    const rows = count(state.elsewhere, "doubtful row is", "doubtful rows are");
    lines.push(`${rows} shown to others; the page asks for them again.`);
    retryTimer ??= setTimeout(retry, 5 * RETRY_MS);
  }
  $("end-text").textContent = lines.join(" ");
  $("next-command").textContent = state.next_command;
  $("again").hidden = state.skipped === 0;
  $("again").textContent = `Show ${count(state.skipped, "skipped row", "skipped rows")} again`;
  $("rest").hidden = goOn || state.doubtful === 0 || state.left <= state.skipped;
}

function endTitle(filter) {
  if (filter) return `No more rows with “${filter}” for you now`;
  if (state.elsewhere > 0) return "Nothing more for you now";
  if (state.skipped > 0) return "Only skipped rows are left";
  return "All done";
}

function doubtfulRowsAnswered() {
  if (state.doubtful === 0) return "No row is doubtful.";
  if (state.doubtful === 1) return "The one doubtful row is answered.";
  return `All ${state.doubtful.toLocaleString()} doubtful rows are answered.`;
}

function count(number, singular, plural) {
  return `${number.toLocaleString()} ${number === 1 ? singular : plural}`;
}

function showProblem() {
  const messages = {
    up: problem,
    failing: `The server cannot save: ${problem} What you decided is kept here, and the page tries again.`,
    down: "The server does not answer. Start oneof review again and open its address; what you decided is kept here until then.",
    refused: "This page belongs to a server that has stopped. Open the address that oneof review printed last.",
  };
  $("error").textContent = messages[connection];
  $("error").hidden = messages[connection] === "";
  const unsent = unsentOfThisRun().length;
  let offlineText = "Everything that you decided is saved.";
  if (unsent > 0) offlineText = `${count(unsent, "answer is", "answers are")} kept in this browser.`;
  $("offline-text").textContent = offlineText;
}

function showCard(card) {
  $("title").textContent = `Row ${card.row}`;
  $("before").textContent = card.skipped ? "You skipped this row before." : "";
  showItem(card);
  const blind = isBlind(card);
  options = blind ? inNeutralOrder(card.candidates) : card.candidates;
  $("candidates").replaceChildren(...options.map((candidate, k) => candidateItem(candidate, k, blind)));
  const nHidden = [...$("candidates").children].filter((item) => item.hidden).length;
  $("find-row").hidden = nHidden === 0;
  $("more").hidden = nHidden === 0;
  $("more").textContent = `Show ${count(nHidden, "more candidate", "more candidates")}`;
  $("blind").hidden = !blind;
  $("outside").textContent = "";
  if (card.outside && !blind) $("outside").textContent = `The model is sure of ${card.outside}, which is not in the set.`;
  showSimilarRows(card, blind);
  showUnsure();
  const [first] = card.candidates;
  if (blind) announce(`Row ${card.row}. Drawn at random: the suggestion is hidden.`);
  else announce(`Row ${card.row}. Suggested: ${first.label}, ${percent(first.probability)}.`);
}

function showSimilarRows(card, blind) {
  $("near").hidden = card.near.length === 0 || blind;
  const items = card.near.map((row) => {
    const [column] = row.pictures;
    if (column === undefined) return element("li", `${row.label}: row ${row.row} ${row.item}`);
    const item = element("li");
    item.append(pictureOf(row.row, column, "small"), element("span", `${row.label}, row ${row.row}`));
    return item;
  });
  const list = $("near").querySelector("ul");
  list.classList.toggle("pictures", card.near.some((row) => row.pictures.length > 0));
  if (list.classList.contains("pictures")) $("near").open = true;
  list.replaceChildren(...items);
}

/* A picture of a row, whole or as a thumbnail. Very small ones are enlarged without blur. */
function pictureOf(row, column, size = "whole") {
  const picture = element("img");
  picture.alt = `${column} of row ${row}`;
  picture.src = `/picture?${new URLSearchParams({ row, column, token, size })}`;
  picture.addEventListener("load", () => picture.classList.toggle("tiny", picture.naturalWidth < 128));
  return picture;
}

/* A row that measures how often the model is right must be judged without it. */
const isBlind = (card) => card.drawn === "random";

function inNeutralOrder(candidates) {
  return [...candidates].sort((a, b) => a.label.localeCompare(b.label, undefined, { numeric: true }));
}

function showItem(card) {
  const list = element("dl");
  for (const [name, text] of card.item) list.append(element("dt", name), element("dd", text));
  const pictures = card.pictures.map((column) => {
    const button = element("button", undefined, "picture");
    button.type = "button";
    button.setAttribute("aria-label", `View ${column} of row ${card.row} large`);
    button.setAttribute("aria-keyshortcuts", "v");
    button.append(pictureOf(card.row, column));
    button.addEventListener("click", () => view(card.row, column));
    return button;
  });
  $("item").replaceChildren(...pictures, list);
}

const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

function candidateItem(candidate, k, blind) {
  const item = element("li");
  const button = element("button");
  const hasKey = k < KEYS_FOR_CANDIDATES;
  item.hidden = !hasKey || !(blind || candidate.likely);
  button.type = "button";
  button.append(element("kbd", hasKey ? String(k + 1) : ""), element("span", candidate.label, "name"));
  if (!blind) button.append(...evidence(candidate));
  if (hasKey) button.setAttribute("aria-keyshortcuts", String(k + 1));
  button.addEventListener("click", (event) => onCard(event, () => choose(k)));
  item.append(button);
  return item;
}

/* Probability, votes, and when and why the candidate was removed. */
function evidence(candidate) {
  const meter = element("meter");
  meter.value = candidate.probability;
  meter.setAttribute("aria-hidden", "true");
  const nodes = [element("span", percent(candidate.probability)), meter];
  let why = "";
  if (candidate.votes) why += `${count(Math.round(100 * candidate.votes) / 100, "vote", "votes")}. `;
  if (candidate.removal) why += candidate.removal;
  if (why) nodes.push(element("span", why, "why"));
  return nodes;
}

function showAllCandidates() {
  for (const item of $("candidates").children) item.hidden = false;
  $("more").hidden = true;
}

/* Act on the card if it was on the screen when the key or button was pressed; the second click of a double click was for the card before. */
function onCard(event, act) {
  const wasShown = shown !== null && event.timeStamp >= shownAt;
  const isSecondClick = event.detail > 1;
  if (wasShown && !isSecondClick) act();
}

/* Choose the candidate with this key, unless it is folded away. */
function chooseByKey(k) {
  if (k < options.length && !$("candidates").children[k].hidden) choose(k);
}

function choose(k) {
  if (k < 0 || k >= options.length) return;
  if (unsure === null) return decide("label", [options[k].label]);
  if (unsure.has(k)) unsure.delete(k);
  else unsure.add(k);
  showUnsure();
}

function toggleUnsure() {
  unsure = unsure ? null : new Set();
  showUnsure();
}

function showUnsure() {
  $("unsure").setAttribute("aria-pressed", String(unsure !== null));
  [...$("candidates").children].forEach((item, k) => {
    const isStruckOut = unsure !== null && unsure.has(k);
    item.classList.toggle("out", isStruckOut);
  });
  if (unsure) {
    $("question").textContent = "Strike out what it is not; Enter sends what is left.";
    $("accept").firstChild.textContent = "Send what is left ";
  } else {
    $("question").textContent = "Which label is right?";
    $("accept").firstChild.textContent = "Take the suggestion ";
  }
  $("accept").hidden = unsure === null && shown !== null && isBlind(shown);
}

function accept() {
  if (unsure === null && isBlind(shown)) return announce("The suggestion is hidden for a row drawn at random: choose a label.");
  if (unsure === null) return decide("label", [shown.suggested]);
  const isFolded = (candidate, k) => !candidate.likely && $("candidates").children[k].hidden;
  const left = options.filter((candidate, k) => !unsure.has(k) && !isFolded(candidate, k)).map((candidate) => candidate.label);
  if (left.length > 0) decide("set", left);
  else announce("Nothing is left: press X for none of these.");
}

/* ------------------------------------------------------------------------------------------------ labels by name */

let knownLabels = []; // the classes of the run, and what people added

/* The server does not know yet what an answer adds that it has not confirmed. */
async function loadLabels() {
  const { labels } = await call("/api/labels");
  const unsentNew = unsentOfThisRun().filter((entry) => entry.answer.new);
  const added = unsentNew.flatMap((entry) => entry.answer.labels);
  const allLabels = [...new Set([...labels, ...added])];
  if (allLabels.join("\n") === knownLabels.join("\n")) return; // the completion that an arrow key has marked stays marked
  knownLabels = allLabels;
  labelBox.update();
  showFilter();
}

/* The rows with one label among their candidates. */
function showFilter() {
  const chosen = $("filter").value;
  const options = ["", ...knownLabels].map((label) => {
    const option = element("option", label === "" ? "any label" : label);
    option.value = label;
    return option;
  });
  $("filter").replaceChildren(...options);
  $("filter").value = chosen;
}

async function loadGuidelines() {
  const { text } = await call("/api/guidelines");
  $("guidelines").hidden = text === "";
  $("guidelines").querySelector("div").textContent = text;
}

const folded = (text) => text.normalize("NFKC").trim().toLocaleLowerCase().replace(/\s+/g, " ");

/* Labels that contain the text, those that begin with it first. */
function completions(text, labels) {
  const wanted = folded(text);
  const containing = labels.filter((label) => folded(label).includes(wanted));
  const rank = (label) => (folded(label).startsWith(wanted) ? 0 : 1);
  return containing.sort((a, b) => rank(a) - rank(b));
}

/* The number of characters to insert, delete or replace (Levenshtein). */
function editDistance(a, b) {
  let above = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const deleted = above[j] + 1;
      const inserted = row[j - 1] + 1;
      const replaced = above[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(deleted, inserted, replaced));
    }
    above = row;
  }
  return above[b.length];
}

/* Labels that somebody may have meant who typed this, closest first. */
function similarLabels(text) {
  const typed = folded(text);
  const limit = Math.max(1, Math.floor(typed.length / 3));
  const close = knownLabels
    .filter((label) => Math.abs(label.length - typed.length) <= limit)
    .map((label) => [editDistance(typed, folded(label)), label])
    .filter(([distance]) => distance <= limit)
    .sort((a, b) => a[0] - b[0])
    .map(([, label]) => label);
  return [...new Set([...close, ...completions(typed, knownLabels)])].slice(0, 3);
}

/* An input with a list of completions below it: arrows choose one, Tab takes it into the input, Enter sends it. */
function combobox(input, list, options, send) {
  let active = -1;
  const items = () => [...list.children];
  const mark = (k) => {
    active = k;
    items().forEach((item, j) => item.setAttribute("aria-selected", String(j === k)));
    if (k >= 0) input.setAttribute("aria-activedescendant", items()[k].id);
    else input.removeAttribute("aria-activedescendant");
    items()[k]?.scrollIntoView({ block: "nearest" });
  };
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    mark(-1);
  };
  const update = () => {
    let labels = [];
    if (input.value.trim()) labels = options(input.value).slice(0, COMPLETIONS);
    const newItems = labels.map((label, k) => {
      const item = element("li", label);
      item.id = `${list.id}-${k}`;
      item.setAttribute("role", "option");
      item.addEventListener("mousedown", (event) => {
        event.preventDefault();
        send(label, event);
      });
      return item;
    });
    list.replaceChildren(...newItems);
    list.hidden = labels.length === 0;
    input.setAttribute("aria-expanded", String(labels.length > 0));
    mark(-1);
  };
  input.setAttribute("role", "combobox");
  input.setAttribute("aria-autocomplete", "list");
  input.setAttribute("aria-controls", list.id);
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Completions");
  input.addEventListener("input", update);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const size = list.hidden ? 0 : list.children.length;
    if (event.isComposing || (event.repeat && event.key === "Enter")) return;
    if (event.key === "ArrowDown" && size > 0) {
      mark((active + 1) % size);
    } else if (event.key === "ArrowUp" && size > 0) {
      const previous = active < 0 ? size - 1 : active - 1;
      mark((previous + size) % size);
    } else if (event.key === "Tab" && size > 0 && !event.shiftKey) {
      input.value = items()[Math.max(active, 0)].textContent;
    } else if (event.key === "Enter") {
      const isMarked = active >= 0 && size > 0;
      send(isMarked ? items()[active].textContent : input.value.trim(), event);
    } else {
      return;
    }
    event.preventDefault();
    if (event.key === "Tab") update();
  });
  close();
  return { update, close };
}

/* Send a label that was typed. One that is new asks first, since it would become a class. */
function sendTyped(label) {
  if (label === "") return decide("none", []);
  if (shown.candidates.some((candidate) => candidate.label === label)) return decide("label", [label]);
  if (knownLabels.includes(label)) return decide("none", [label]);
  askAboutNew(label);
}

function askAboutNew(label) {
  const similar = similarLabels(label);
  const choices = similar.map((other, k) => {
    const button = element("button", `${other} `);
    button.append(element("kbd", String(k + 1)));
    button.addEventListener("click", (event) => onCard(event, () => sendTyped(other)));
    return button;
  });
  const add = element("button", `Add “${label}” as a new class `);
  add.append(element("kbd", "N"));
  add.addEventListener("click", (event) => onCard(event, () => addLabel(label)));
  const back = element("button", "Back ");
  back.append(element("kbd", "Esc"));
  back.addEventListener("click", none);
  for (const button of [...choices, add, back]) button.type = "button";
  closeForms();
  let question = `No class of this run is called “${label}”.`;
  if (similar.length > 0) question += " Did you mean one of these?";
  $("confirm-title").textContent = question;
  $("confirm").querySelector("div").replaceChildren(...choices, add, back);
  $("confirm").hidden = false;
  $("confirm-title").focus();
}

function addLabel(label) {
  knownLabels.push(label);
  decide("none", [label], { new: true });
}

/* Keys of the question about a new label: a number, N, or Escape. Enter chooses nothing. */
function answerQuestion(key) {
  const buttons = [...$("confirm").querySelectorAll("button")];
  const similar = buttons.slice(0, -2);
  if (/^[1-9]$/.test(key)) similar[Number(key) - 1]?.click();
  else if (key === "n") buttons.at(-2).click();
  else if (key === "escape") none();
}

const labelBox = combobox(
  $("label"),
  $("label-options"),
  (text) => completions(text, knownLabels),
  (label, event) => onCard(event, () => sendTyped(label)),
);

/* Choose the candidate of this name, or the first that has the text in its name. */
function chooseByName(text) {
  if (text === "" && unsure) return accept();
  let k = options.findIndex((candidate) => candidate.label === text);
  if (k < 0) {
    const [name] = findCandidates(text);
    k = options.findIndex((candidate) => candidate.label === name);
  }
  if (text === "" || k < 0) return announce("No candidate has this in its name: press Esc, then X for none of these.");
  $("find").value = "";
  findBox.close();
  if (unsure) $("candidates").children[k].hidden = false;
  else $("find").blur();
  choose(k);
}

function findCandidates(text) {
  return completions(text, options.map((candidate) => candidate.label));
}

const findBox = combobox(
  $("find"),
  $("find-options"),
  findCandidates,
  (text, event) => onCard(event, () => chooseByName(text)),
);

function keepAnswer(card, kind, labels, seconds, more = {}) {
  const answer = {
    id: crypto.randomUUID(),
    row: card.row,
    kind,
    labels,
    run: card.run,
    drawn: card.drawn,
    seconds: Math.round(10 * seconds) / 10,
    ...more,
  };
  keepUnsent({ who: who(), answer }, card);
}

function decide(kind, labels, more = {}) {
  const card = cards.shift();
  keepAnswer(card, kind, labels, (performance.now() - shownAt) / 1000, more);
  reveal(card, kind, labels);
  if (randomLeft > 0) randomLeft -= 1;
  else if (skippedLeft > 0) skippedLeft -= 1;
  problem = "";
  exhausted = false;
  render();
  inTurn(catchUp);
}

/* Say what the model had suggested for a row that was judged without it. */
function reveal(card, kind, labels) {
  let text = "";
  if (isBlind(card) && kind !== "skip") {
    const agrees = kind !== "set" && labels[0] === card.suggested;
    if (agrees) text = `Row ${card.row}: the model has the same label.`;
    else text = `Row ${card.row}: the model suggested ${card.suggested}.`;
  }
  $("revealed").textContent = text;
}

/* Take back the last answer, or the one with this id, and show its row again. */
function undo(id) {
  inTurn(async () => {
    await flush();
    const { card } = await call("/api/undo", id === undefined ? {} : { id });
    if (!card) return announce("There is nothing to undo.");
    gridCards = null;
    await loadLabels(); // a label that only this answer had is no class any more
    cards = [card, ...cards.filter((other) => other.row !== card.row)];
    render();
    announce(`Undone: row ${card.row} comes again.`);
  });
}

function none() {
  unsure = null;
  showUnsure();
  closeForms();
  $("typed").hidden = false;
  $("label").focus();
  inTurn(loadLabels);
}

function cancel() {
  unsure = null;
  closeForms();
  showUnsure();
  leaveControls();
}

function closeForms() {
  $("typed").hidden = true;
  $("confirm").hidden = true;
  $("label").value = "";
  labelBox.close();
  $("find").value = "";
  findBox.close();
}

/* Take the focus away from buttons and inputs, to the card's heading where there is one. */
function leaveControls() {
  if (!$("typed").hidden || !$("confirm").hidden || gridCards) return;
  if (shown) $("title").focus({ preventScroll: true });
  else document.activeElement?.blur();
}

/* Show the keys. The browser gives the focus back to what had it, and that must not be the button: Enter would open the help again. */
function openHelp() {
  leaveControls();
  $("help").showModal();
}

/* ------------------------------------------------------------------------------------------- many rows at once */

function openGrid(label = "") {
  wantsGrid = true;
  return inTurn(async () => {
    const reply = await loadGrid(label);
    if (!wantsGrid) return;
    if (reply.cards.length === 0) {
      gridCards = null;
      exhausted = false;
      await fill();
      return announce("No row is left to confirm at once.");
    }
    gridCards = reply.cards;
    gridAt = performance.now();
    showGrid(reply);
    render();
    $("grid-title").focus();
  });
}

/* Ask for rows to confirm. Without an answer the page goes back to one row, which says that the server is away. */
async function loadGrid(label) {
  try {
    await flush();
    const heldCards = [...cards, ...answeredCards.values()]; // the others are given back
    const held = heldCards.map((card) => card.row).join(",");
    return await call(`/api/grid?${new URLSearchParams({ label, held })}`);
  } catch (error) {
    gridCards = null;
    exhausted = false;
    throw error;
  }
}

function closeGrid() {
  wantsGrid = false;
  gridCards = null;
  exhausted = false;
  render();
  return inTurn(catchUp);
}

function showGrid({ cards: rows, label, labels }) {
  $("grid-title").textContent = `${count(rows.length, "row", "rows")} that may be “${label}”`;
  const choices = labels.map(([name, left]) => {
    const option = element("option", `${name} (${left.toLocaleString()})`);
    option.value = name;
    return option;
  });
  $("grid-label").replaceChildren(...choices);
  $("grid-label").value = label;
  $("grid-rows").replaceChildren(...rows.map(gridItem));
  showTicked();
  announce("");
}

function gridItem(card) {
  const item = element("li");
  const label = element("label");
  const tick = element("input");
  tick.type = "checkbox";
  tick.checked = true;
  tick.addEventListener("change", showTicked);
  const [column] = card.pictures;
  if (column !== undefined) label.append(pictureOf(card.row, column, "small"));
  const [candidate] = card.candidates;
  label.append(tick, element("span", ` Row ${card.row}, ${percent(candidate.probability)}`));
  if (column === undefined) label.append(element("span", card.item.map(([, text]) => text).join(" · "), "text"));
  item.append(label);
  return item;
}

const ticks = () => [...$("grid-rows").querySelectorAll("input")];

function showTicked() {
  const ticked = ticks().filter((tick) => tick.checked).length;
  $("grid-confirm").textContent = `Confirm ${count(ticked, "row", "rows")}`;
  $("grid-confirm").disabled = ticked === 0;
}

/* Write down the ticked rows, and show the next ones of this label. The others are skipped, so that they do not come again at once. */
function confirmGrid() {
  const seconds = (performance.now() - gridAt) / 1000 / gridCards.length;
  ticks().forEach((tick, k) => {
    const card = gridCards[k];
    if (tick.checked) keepAnswer(card, "label", [card.suggested], seconds);
    else keepAnswer(card, "skip", [], seconds);
  });
  gridCards = [];
  openGrid($("grid-label").value);
}

$("many").addEventListener("click", () => openGrid());
$("grid-label").addEventListener("change", () => openGrid($("grid-label").value));
$("grid-leave").addEventListener("click", closeGrid);
$("grid-none").addEventListener("click", () => {
  for (const tick of ticks()) tick.checked = false;
  showTicked();
});
$("grid").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.timeStamp >= gridAt && gridCards?.length > 0) confirmGrid();
});

/* --------------------------------------------------------------------------------------------------- large pictures */

let zoomLevel = 1; // 1: as large as the window allows

function view(row, column) {
  $("zoom-title").textContent = `${column} of row ${row}`;
  const picture = pictureOf(row, column);
  picture.addEventListener("load", () => zoom(1));
  $("zoom-frame").replaceChildren(picture);
  $("zoom").showModal();
  $("zoom-frame").focus();
}

function zoom(level) {
  const frame = $("zoom-frame");
  const picture = frame.querySelector("img");
  if (!picture?.naturalWidth) return;
  zoomLevel = Math.min(16, Math.max(1, level));
  const fitting = Math.min(frame.clientWidth / picture.naturalWidth, frame.clientHeight / picture.naturalHeight);
  const factor = fitting * zoomLevel;
  picture.width = Math.max(1, Math.floor(picture.naturalWidth * factor));
  picture.classList.toggle("tiny", factor > 3);
  $("zoom-level").textContent = `${Math.round(100 * factor)} %`;
}

$("zoom-in").addEventListener("click", () => zoom(zoomLevel * 1.5));
$("zoom-out").addEventListener("click", () => zoom(zoomLevel / 1.5));
window.addEventListener("resize", () => zoom(zoomLevel));
$("zoom-close").addEventListener("click", () => $("zoom").close());
$("zoom").addEventListener("close", () => {
  $("zoom-frame").replaceChildren();
  leaveControls();
});
$("zoom").addEventListener("keydown", (event) => {
  if (event.key === "+" || event.key === "=") zoom(zoomLevel * 1.5);
  else if (event.key === "-") zoom(zoomLevel / 1.5);
  else return;
  event.preventDefault();
});

/* ------------------------------------------------------------------------------------------------------- the side */

function showState(newState) {
  const isNewRun = state !== null && state.run !== newState.run;
  state = newState;
  if (isNewRun) { // the card on the screen may be answered still; the others come in the new order
    cards = shown ? [shown] : [];
    gridCards = null;
    exhausted = false;
    inTurn(fill).then(() => announce("The model has learned again: the next rows come in its new order."));
  }
  $("folder").textContent = state.folder;
  $("who").placeholder = state.who;
  showProgress();
  $("accuracy").textContent = describeAccuracy();
  const [equal, pairs] = state.agreement;
  $("agreement").textContent = pairs ? `Second answers to a row agree in ${equal} of ${pairs}.` : "";
  $("advice").textContent = state.advice;
  const isLearning = state.learning.state === "running";
  $("learn").disabled = isLearning || state.decided === 0;
  $("learning").textContent = state.learning.text;
  drawCurve(state.curve);
  showHistory(state.history);
  if (isLearning) setTimeout(() => inTurn(() => call("/api/state")), POLL_MS);
}

function showProgress() {
  const answered = state.doubtful - state.to_ask;
  $("bar").max = Math.max(1, state.doubtful);
  $("bar").value = state.doubtful > 0 ? answered : 1;
  let text = "No row is doubtful";
  if (state.doubtful > 0) {
    text = `${answered.toLocaleString()} of ${count(state.doubtful, "doubtful row", "doubtful rows")} answered`;
  }
  $("bar-text").textContent = text;
  const decided = state.decided.toLocaleString();
  const rows = state.rows.toLocaleString();
  $("progress").textContent = `${decided} of ${rows} rows in all, ${state.mine.toLocaleString()} by you`;
}

/* How often the model is right, by the rows drawn at random. */
function describeAccuracy() {
  let text = "Not known yet: one row in five is drawn at random, and these will tell.";
  const accuracy = state.accuracy;
  if (accuracy) {
    const share = percent(accuracy.right / accuracy.rows);
    const interval = `${percent(accuracy.low)} to ${percent(accuracy.high)}`;
    text = `${share} of the model's labels are right (${interval}), by ${count(accuracy.rows, "random row", "random rows")}`;
    if (accuracy.unsure) text += `, ${accuracy.unsure} of them unsure`;
    text += ".";
  }
  if (randomLeft > 0) text += ` ${count(randomLeft, "random row", "random rows")} to go.`;
  return text;
}

function describeAnswer(answer) {
  const labels = answer.labels.join(", ");
  if (answer.kind === "skip") return "skipped";
  if (answer.kind === "set") return `one of ${labels}`;
  if (answer.kind === "none" && labels === "") return "none of its candidates";
  return labels;
}

function showHistory(answers) {
  const items = answers.map((answer) => {
    const item = element("li", `Row ${answer.row}: ${describeAnswer(answer)} `);
    const button = element("button", "Ask again");
    button.type = "button";
    button.setAttribute("aria-label", `Ask again about row ${answer.row}`);
    button.addEventListener("click", () => undo(answer.id));
    item.append(button);
    return item;
  });
  $("history").hidden = items.length === 0;
  $("history").querySelector("ol").replaceChildren(...items);
}

function svgElement(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/* Draw the share of right labels, with its interval, against the number of decisions. */
function drawCurve(rows) {
  $("curve").hidden = rows.length < 2;
  if (rows.length < 2) return;
  const points = rows.map(([decisions, share, low, high]) => ({ decisions, share, low, high }));
  const first = points[0];
  const last = points.at(-1);
  const LEFT = 36, RIGHT = 295, TOP = 8, BOTTOM = 104; // of the 300 x 120 that the picture has

  // The first half of the points is too uncertain to set the scale.
  const laterPoints = points.slice(Math.floor(points.length / 2));
  const lowest = Math.floor(10 * Math.min(...laterPoints.map((point) => point.low))) / 10;
  const x = (decisions) => {
    const range = Math.max(1, last.decisions - first.decisions);
    return LEFT + ((RIGHT - LEFT) * (decisions - first.decisions)) / range;
  };
  const y = (share) => {
    const range = Math.max(0.1, 1 - lowest);
    return BOTTOM - ((BOTTOM - TOP) * (Math.max(share, lowest) - lowest)) / range;
  };
  const line = (key) => points.map((point) => `${x(point.decisions).toFixed(1)},${y(point[key]).toFixed(1)}`);

  const nodes = [];
  for (const share of [lowest, 1]) {
    nodes.push(svgElement("line", { x1: LEFT, x2: RIGHT, y1: y(share), y2: y(share), class: "axis" }));
    nodes.push(svgElement("text", { x: LEFT - 4, y: y(share) + 3, "text-anchor": "end", class: "tick" }, percent(share)));
  }
  nodes.push(svgElement("text", { x: LEFT, y: BOTTOM + 13, class: "tick" }, first.decisions));
  const lastTick = { x: RIGHT, y: BOTTOM + 13, "text-anchor": "end", class: "tick" };
  nodes.push(svgElement("text", lastTick, `${last.decisions} decisions`));
  const band = [...line("high"), ...line("low").reverse()];
  nodes.push(svgElement("polygon", { points: band.join(" "), class: "band" }));
  nodes.push(svgElement("polyline", { points: line("share").join(" "), class: "line" }));

  const interval = `${percent(last.low)} to ${percent(last.high)}`;
  $("curve-says").textContent = `After ${last.decisions} decisions ${percent(last.share)} of the labels are right, ${interval}.`;
  $("curve").querySelector("svg").replaceChildren($("curve-says"), ...nodes);
}

/* ------------------------------------------------------------------------------------------------------- the keys */

/* After a click the focus leaves the button, so that Enter does what the card says and never repeats the click. Keys keep the focus. */
document.addEventListener("click", (event) => {
  if (event.detail > 0 && event.target.closest("button, summary") && !$("help").open) leaveControls();
});

$("accept").addEventListener("click", (event) => onCard(event, accept));
$("unsure").addEventListener("click", (event) => onCard(event, toggleUnsure));
$("none").addEventListener("click", (event) => onCard(event, none));
$("skip").addEventListener("click", (event) => onCard(event, () => decide("skip", [])));
$("more").addEventListener("click", showAllCandidates);
$("undo").addEventListener("click", () => undo());
$("undo-last").addEventListener("click", () => undo());
$("help-button").addEventListener("click", openHelp);
$("typed").addEventListener("submit", (event) => {
  event.preventDefault();
  onCard(event, () => sendTyped($("label").value.trim()));
});
$("random").addEventListener("click", () => {
  randomLeft = 50;
  reload();
});
$("again").addEventListener("click", () => {
  skippedLeft = state.skipped;
  reload();
});
$("rest").addEventListener("click", () => {
  goOn = true;
  reload();
});
$("filter").addEventListener("change", () => {
  leaveControls();
  reload();
});
$("filter-form").addEventListener("submit", (event) => event.preventDefault());
$("any-label").addEventListener("click", () => {
  $("filter").value = "";
  reload();
});
$("learn").addEventListener("click", () => inTurn(() => call("/api/learn", {})));
$("person").addEventListener("submit", (event) => {
  event.preventDefault();
  leaveControls();
});
$("who").addEventListener("change", () => {
  store("oneof-who", who());
  keepInTab("who", who());
  reload();
});
$("move").addEventListener("submit", (event) => {
  event.preventDefault();
  moveTo($("address").value);
});
window.addEventListener("online", retry);

/* Give the rows back when the page is closed. One that the browser shows again from its cache begins anew. */
window.addEventListener("pagehide", () => {
  const headers = { "X-Token": token, "Content-Type": "application/json" };
  fetch("/api/close", { method: "POST", headers, body: JSON.stringify({ tab }), keepalive: true }).catch(() => {});
});
window.addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  tab = crypto.randomUUID();
  reload();
});

const CARD_KEYS = {
  u: toggleUnsure,
  x: none,
  s: () => decide("skip", []),
  enter: accept,
  escape: cancel,
  "/": () => $("find").focus(),
  v: () => document.querySelector("#item .picture")?.click(),
};
const PAGE_KEYS = {
  z: () => undo(),
  g: () => openGrid(),
  "?": openHelp,
};
document.addEventListener("keydown", (event) => {
  if ($("help").open || $("zoom").open || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (gridCards) {
    if (event.key === "Escape") closeGrid();
    return;
  }
  if (event.target.matches("select")) return;
  if (event.target.matches("input")) {
    if (event.key !== "Escape" || !shown) return;
    if (event.target === $("find")) closeForms();
    else cancel();
    leaveControls();
    return;
  }
  const key = event.key.toLowerCase();
  if (!$("confirm").hidden) {
    onCard(event, () => answerQuestion(key));
    if (key !== "tab" && !event.target.matches("button")) event.preventDefault();
    return;
  }
  if (key === "enter" && event.target.matches("button, summary")) return;
  if (/^[1-9]$/.test(key)) onCard(event, () => chooseByKey(Number(key) - 1));
  else if (CARD_KEYS[key]) onCard(event, CARD_KEYS[key]);
  else if (PAGE_KEYS[key]) PAGE_KEYS[key]();
  else return;
  event.preventDefault();
});

render();
inTurn(catchUp);

"use strict";
// The table of rows: search, filter, sort, page. Strings of the data only ever become text nodes.
(() => {
  const PAGE_SIZE = 50;
  const MAX_CHIPS = 10; // candidates of a row that are shown, the most probable ones
  const NO_BREAK_SPACE = "\u00a0";
  const find = (id) => document.getElementById(id);
  const query = find("query");
  const only = find("only");
  const body = find("body");
  const count = find("count");
  const back = find("back");
  const forth = find("forth");
  const heads = [...document.querySelectorAll("#table thead button")];
  const shownColumns = new Set(heads.map((head) => head.dataset.by));
  const state = { by: "row", down: false, page: 0, matches: [] };

  /* ------------------------------------------------------------------------------------------------------- the data */

  const data = JSON.parse(find("data").textContent);
  const positions = new Map(data.columns.map((name, k) => [name, k]));
  const get = (row, name) => row[positions.get(name)];
  const labelName = (k) => (k < 0 ? "" : data.names[k]);

  function votesFor(row, k) {
    const vote = get(row, "votes").find(([name]) => name === labelName(k));
    return vote ? vote[1] : 0;
  }

  function mostVotes(row) {
    const counts = get(row, "votes").map(([, n]) => n);
    return Math.max(0, ...counts);
  }

  function totalVotes(row) {
    let total = 0;
    for (const [, n] of get(row, "votes")) total += n;
    return total;
  }

  /* What a search looks through: the row's number, its labels, its group and the text that identifies it. */
  function searchableText(row) {
    const parts = [
      `#${get(row, "row")}`,
      ...get(row, "original").map(labelName),
      labelName(get(row, "outside")),
      labelName(get(row, "gold")),
      get(row, "group") ?? "",
      get(row, "item") ?? "",
    ];
    return parts.join("\n").toLowerCase();
  }

  const searchable = new Map(data.rows.map((row) => [row, searchableText(row)]));

  /* ------------------------------------------------------------------------------------------- search, filter, sort */

  const filters = {
    all: () => true,
    ask: (row) => get(row, "ask"),
    decided: (row) => get(row, "decision"),
    open: (row) => get(row, "kept").length > 1,
    outside: (row) => get(row, "outside") >= 0,
    overruled: (row) => votesFor(row, get(row, "label")) < mostVotes(row),
    wrong: (row) => get(row, "gold") >= 0 && get(row, "gold") !== get(row, "label"),
  };

  /* Columns that are not sorted by the value that they hold. */
  const sortKeys = {
    label: (row) => labelName(get(row, "label")),
    gold: (row) => labelName(get(row, "gold")),
    group: (row) => get(row, "group") ?? "",
    original: (row) => get(row, "original").length,
  };
  const compareText = new Intl.Collator(undefined, { numeric: true }).compare;

  function compare(a, b) {
    if (typeof a === "string") return compareText(a, b);
    return a - b;
  }

  function isMatch(row, text) {
    if (text === "" || searchable.get(row).includes(text)) return true;
    const isNumber = /^#?\d+$/.test(text);
    return isNumber && get(row, "row") === Number(text.replace("#", ""));
  }

  function search() {
    const text = query.value.trim().toLowerCase();
    const isWanted = filters[only.value];
    const sortKey = sortKeys[state.by] ?? ((row) => get(row, state.by));
    const sign = state.down ? -1 : 1;
    const entries = [];
    for (const row of data.rows) {
      if (isWanted(row) && isMatch(row, text)) entries.push({ row, key: sortKey(row) });
    }
    entries.sort((a, b) => sign * compare(a.key, b.key) || get(a.row, "row") - get(b.row, "row"));
    state.matches = entries.map((entry) => entry.row);
    state.page = 0;
    show();
  }

  function sort(by, down) {
    state.by = by;
    state.down = down;
    search();
  }

  /* ------------------------------------------------------------------------------------------------------- the cells */

  function element(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  const label = (k) => element("bdi", { class: "label", title: labelName(k) }, labelName(k));
  const numberCell = (name, text) => element("td", { class: "n", "data-name": name }, text);
  const small = (text) => element("small", {}, text);
  const percent = (share, digits) => `${(100 * share).toFixed(digits)}${NO_BREAK_SPACE}%`;
  const countVotes = (n) => `${n} ${n === 1 ? "vote" : "votes"}`;

  /* The candidates of a row, the removed ones struck out. */
  function chips(row) {
    const resolved = get(row, "label");
    const kept = new Set(get(row, "kept"));
    const shares = get(row, "shares");
    const candidates = get(row, "original");
    const nodes = [];
    if (!candidates.includes(resolved)) {
      nodes.push(element("span", { class: "chip taken" }, label(resolved), small(`${NO_BREAK_SPACE}named by nobody`)), " ");
    }
    candidates.slice(0, MAX_CHIPS).forEach((k, i) => {
      let note = `${NO_BREAK_SPACE}${shares[i]}${NO_BREAK_SPACE}%`;
      if (data.voted) note += `, ${countVotes(votesFor(row, k))}`;
      const tag = kept.has(k) ? "span" : "del";
      const className = k === resolved ? "chip taken" : "chip";
      nodes.push(element(tag, { class: className }, label(k), small(note)), " ");
    });
    if (candidates.length > MAX_CHIPS) nodes.push(`and ${candidates.length - MAX_CHIPS} less probable`);
    return nodes;
  }

  function describeRemoval(row, round, margin, networks) {
    const lead = margin.toFixed(2);
    if (round === 0) return ` was removed before training: judged by the other rows, the best candidate leads it by ${lead}`;
    const trained = get(row, "trained");
    return ` was removed in round ${round} by ${networks} of ${trained} networks, when the best candidate led it by ${lead}`;
  }

  /* Why the row has its label, folded; nothing where there is nothing to say. */
  function reasons(row) {
    const resolved = get(row, "label");
    const items = [];
    if (data.voted) {
      const total = totalVotes(row);
      if (total === 0) {
        items.push(element("li", {}, "nobody voted on it"));
      } else {
        items.push(element("li", {}, `${votesFor(row, resolved)} of ${countVotes(total)} for `, label(resolved)));
      }
    }
    for (const [k, round, margin, networks] of get(row, "removed")) {
      items.push(element("li", {}, label(k), describeRemoval(row, round, margin, networks)));
    }
    const outside = get(row, "outside");
    if (outside >= 0) {
      items.push(element("li", {}, "the models are confident of ", label(outside), ", which is not a candidate"));
    }
    if (get(row, "original").length > 1 && get(row, "trained") > 0) {
      const agreement = percent(get(row, "agreement"), 0);
      items.push(element("li", {}, `${agreement} of the models predict `, label(resolved)));
    }
    if (items.length === 0) return [];
    const rowNumber = element("span", { class: "hidden" }, ` row ${get(row, "row")}`);
    const summary = element("summary", {}, "why", rowNumber);
    return [element("details", {}, summary, element("ul", {}, ...items))];
  }

  function rowHead(row) {
    const head = element("th", { scope: "row", class: "n", "data-name": "row" }, String(get(row, "row")));
    if (get(row, "picture")) head.append(element("img", { class: "picture", src: get(row, "picture"), alt: "" }));
    if (get(row, "item")) head.append(element("bdi", { class: "item" }, get(row, "item")));
    return head;
  }

  function labelCell(row) {
    const marks = [];
    if (get(row, "ask")) marks.push("review");
    if (get(row, "decision")) marks.push(get(row, "decision"));
    if (get(row, "outside") >= 0) marks.push("true label missing?");
    const cell = element("td", {}, label(get(row, "label")));
    for (const mark of marks) cell.append(" ", element("span", { class: "mark" }, mark));
    return cell;
  }

  function goldCell(row) {
    const gold = get(row, "gold");
    return element("td", { "data-name": "gold" }, gold < 0 ? "–" : label(gold));
  }

  function tableRow(row) {
    const cells = [rowHead(row), labelCell(row), numberCell("probability", percent(get(row, "probability"), 1))];
    if (shownColumns.has("margin")) {
      cells.push(numberCell("margin", get(row, "margin").toFixed(2)));
      cells.push(numberCell("agreement", percent(get(row, "agreement"), 0)));
    }
    cells.push(element("td", { class: "chips full" }, ...chips(row), ...reasons(row)));
    if (shownColumns.has("group")) {
      const group = element("bdi", { class: "label" }, get(row, "group") ?? "");
      cells.push(element("td", { "data-name": "group" }, group));
    }
    if (shownColumns.has("gold")) cells.push(goldCell(row));
    return element("tr", {}, ...cells);
  }

  /* -------------------------------------------------------------------------------------------------------- the page */

  function describeCount(first, nVisible) {
    const text = (n) => n.toLocaleString("en");
    const all = data.rows.length;
    const matches = state.matches.length;
    if (matches === 0) return `None of the ${text(all)} rows matches.`;
    const part = `${text(first + 1)} to ${text(first + nVisible)} of ${text(matches)}`;
    if (matches < all) return `Rows ${part} matches among ${text(all)} rows.`;
    return `Rows ${part}.`;
  }

  function show() {
    const first = state.page * PAGE_SIZE;
    const visible = state.matches.slice(first, first + PAGE_SIZE);
    body.replaceChildren(...visible.map(tableRow));
    count.textContent = describeCount(first, visible.length);
    back.disabled = state.page === 0;
    forth.disabled = first + PAGE_SIZE >= state.matches.length;
    for (const head of heads) {
      const cell = head.parentElement;
      if (head.dataset.by === state.by) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
  }

  function turn(step) {
    state.page += step;
    show();
    count.scrollIntoView({ block: "start" });
    const [pressed, other] = step > 0 ? [forth, back] : [back, forth];
    if (pressed.disabled) other.focus(); // a disabled button would lose the keyboard
  }

  query.addEventListener("input", search);
  only.addEventListener("change", search);
  find("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const head of heads) {
    head.addEventListener("click", () => {
      const isSecondClick = state.by === head.dataset.by;
      sort(head.dataset.by, isSecondClick && !state.down);
    });
  }
  back.addEventListener("click", () => turn(-1));
  forth.addEventListener("click", () => turn(1));
  find("ask-all")?.addEventListener("click", () => {
    only.value = "ask";
    query.value = "";
    sort("gain", true);
    query.focus();
  });
  search();
})();

"use strict";
// The table of rows: search, filter, sort, page. Strings of the data only ever become text nodes.
(() => {
  const PAGE = 50;
  const MAX_CHIPS = 10; // candidates of a row that are shown, the most probable ones
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = Object.fromEntries(data.columns.map((name, k) => [name, k]));
  const get = (row, name) => row[at[name]];
  const named = (k) => (k < 0 ? "" : data.names[k]);
  const find = (id) => document.getElementById(id);
  const [query, only, body, count, back, forth] = ["query", "only", "body", "count", "back", "forth"].map(find);
  const heads = [...document.querySelectorAll("#table thead button")];
  const shown = new Set(heads.map((head) => head.dataset.by));
  const state = { by: "row", down: false, page: 0, found: [] };

  const words = (row) =>
    [`#${get(row, "row")}`, ...get(row, "original").map(named), named(get(row, "outside")), named(get(row, "gold")), get(row, "group") ?? "", get(row, "item") ?? ""]
      .join("\n").toLowerCase();
  const haystacks = new Map(data.rows.map((row) => [row, words(row)]));

  const filters = {
    all: () => true,
    ask: (row) => get(row, "ask"),
    decided: (row) => get(row, "decision"),
    open: (row) => get(row, "kept").length > 1,
    outside: (row) => get(row, "outside") >= 0,
    overruled: (row) => votesFor(row, get(row, "label")) < mostVotes(row),
    wrong: (row) => get(row, "gold") >= 0 && get(row, "gold") !== get(row, "label"),
  };

  const compareText = new Intl.Collator(undefined, { numeric: true }).compare;
  const keys = {
    label: (row) => named(get(row, "label")),
    gold: (row) => named(get(row, "gold")),
    group: (row) => get(row, "group") ?? "",
    original: (row) => get(row, "original").length,
  };
  const compare = (a, b) => (typeof a === "string" ? compareText(a, b) : a - b);

  function search() {
    const wanted = query.value.trim().toLowerCase();
    const number = /^#?\d+$/.test(wanted) ? Number(wanted.replace("#", "")) : null;
    const matches = (row) => haystacks.get(row).includes(wanted) || get(row, "row") === number;
    const key = keys[state.by] ?? ((row) => get(row, state.by));
    const sign = state.down ? -1 : 1;
    state.found = data.rows
      .filter((row) => filters[only.value](row) && (wanted === "" || matches(row)))
      .map((row) => [key(row), row])
      .sort((a, b) => sign * compare(a[0], b[0]) || get(a[1], "row") - get(b[1], "row"))
      .map((pair) => pair[1]);
    state.page = 0;
    show();
  }

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }
  const label = (k) => element("bdi", { class: "label", title: named(k) }, named(k));
  const number = (name, text) => element("td", { class: "n", "data-name": name }, text);
  const percent = (share, digits) => `${(100 * share).toFixed(digits)}\u00a0%`;

  function chips(row) {
    const kept = new Set(get(row, "kept"));
    const shares = get(row, "shares");
    const candidates = get(row, "original");
    const nodes = candidates.slice(0, MAX_CHIPS).flatMap((k, i) => {
      const kind = k === get(row, "label") ? "chip taken" : "chip";
      let note = `\u00a0${shares[i]}\u00a0%`;
      if (data.voted) note += `, ${countVotes(votesFor(row, k))}`;
      return [element(kept.has(k) ? "span" : "del", { class: kind }, label(k), element("small", {}, note)), " "];
    });
    if (candidates.length > MAX_CHIPS) nodes.push(`and ${candidates.length - MAX_CHIPS} less probable`);
    const isNamed = candidates.includes(get(row, "label"));
    if (!isNamed) nodes.unshift(element("span", { class: "chip taken" }, label(get(row, "label")), element("small", {}, "\u00a0named by nobody")), " ");
    return nodes;
  }

  const countVotes = (n) => `${n} ${n === 1 ? "vote" : "votes"}`;
  const votesFor = (row, k) => get(row, "votes").find(([name]) => name === named(k))?.[1] ?? 0;
  const mostVotes = (row) => Math.max(0, ...get(row, "votes").map(([, n]) => n));

  function reasons(row) {
    const describe = (round, margin, networks) => round === 0
      ? ` was removed before training: judged by the other rows, the best candidate leads it by ${margin.toFixed(2)}`
      : ` was removed in round ${round} by ${networks} of ${get(row, "trained")} networks, when the best candidate led it by ${margin.toFixed(2)}`;
    const removals = get(row, "removed").map(([k, ...removal]) => element("li", {}, label(k), describe(...removal)));
    const outside = get(row, "outside");
    if (outside >= 0) removals.push(element("li", {}, "the models are confident of ", label(outside), ", which is not a candidate"));
    const models = get(row, "original").length > 1 && get(row, "trained") > 0;
    if (models) removals.push(element("li", {}, `${percent(get(row, "agreement"), 0)} of the models predict `, label(get(row, "label"))));
    if (data.voted) removals.unshift(element("li", {}, `${votesFor(row, get(row, "label"))} of ${countVotes(get(row, "votes").reduce((sum, [, n]) => sum + n, 0))} for `, label(get(row, "label"))));
    if (!removals.length) return [];
    const summary = element("summary", {}, "why", element("span", { class: "hidden" }, ` row ${get(row, "row")}`));
    return [element("details", {}, summary, element("ul", {}, ...removals))];
  }

  function line(row) {
    const marks = [];
    if (get(row, "ask")) marks.push(" ", element("span", { class: "mark" }, "review"));
    if (get(row, "decision")) marks.push(" ", element("span", { class: "mark" }, get(row, "decision")));
    if (get(row, "outside") >= 0) marks.push(" ", element("span", { class: "mark" }, "true label missing?"));
    const cells = [
      element("th", { scope: "row", class: "n", "data-name": "row" }, String(get(row, "row")), ...(get(row, "picture") ? [element("img", { class: "picture", src: get(row, "picture"), alt: "" })] : []), ...(get(row, "item") ? [element("bdi", { class: "item" }, get(row, "item"))] : [])),
      element("td", {}, label(get(row, "label")), ...marks),
      number("probability", percent(get(row, "probability"), 1)),
    ];
    if (shown.has("margin")) cells.push(number("margin", get(row, "margin").toFixed(2)), number("agreement", percent(get(row, "agreement"), 0)));
    cells.push(element("td", { class: "chips full" }, ...chips(row), ...reasons(row)));
    if (shown.has("group")) cells.push(element("td", { "data-name": "group" }, element("bdi", { class: "label" }, get(row, "group") ?? "")));
    if (shown.has("gold")) cells.push(element("td", { "data-name": "gold" }, ...(get(row, "gold") < 0 ? ["–"] : [label(get(row, "gold"))])));
    return element("tr", {}, ...cells);
  }

  function show() {
    const first = state.page * PAGE;
    const visible = state.found.slice(first, first + PAGE);
    body.replaceChildren(...visible.map(line));
    const text = (n) => n.toLocaleString("en");
    const [all, found] = [data.rows.length, state.found.length];
    const part = `${text(first + 1)} to ${text(first + visible.length)} of ${text(found)}`;
    if (!found) count.textContent = `None of the ${text(all)} rows matches.`;
    else count.textContent = found < all ? `Rows ${part} matches among ${text(all)} rows.` : `Rows ${part}.`;
    back.disabled = state.page === 0;
    forth.disabled = first + PAGE >= state.found.length;
    for (const head of heads) {
      const cell = head.parentElement;
      if (head.dataset.by === state.by) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
  }

  function sort(by, down) {
    Object.assign(state, { by, down });
    search();
  }
  function turn(step) {
    state.page += step;
    show();
    count.scrollIntoView({ block: "start" });
    const button = step > 0 ? forth : back;
    if (button.disabled) (step > 0 ? back : forth).focus(); // a disabled button would lose the keyboard
  }

  query.addEventListener("input", search);
  only.addEventListener("change", search);
  find("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const head of heads) head.addEventListener("click", () => sort(head.dataset.by, state.by === head.dataset.by && !state.down));
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

"use strict";
// Everything that comes from the server is put in as text.
const token = document.body.dataset.token;
const offered = JSON.parse(document.getElementById("offered").textContent);
const by = (id) => document.getElementById(id);
const names = ["epsilon", "c1", "c2", "range", "bins"];
let seen = 0, timer = null, pending = null, latest = 0;
const columns = [];

async function ask(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Token": token },
    body: JSON.stringify(body || {}),
  });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error || answer.statusText);
  return content;
}

function make(tag, text, parent, more) {
  const element = document.createElement(tag);
  if (text !== null) element.textContent = text;
  Object.assign(element, more || {});
  if (parent) parent.append(element);
  return element;
}

function settings() {
  const mechanism = by("mechanism").value;
  const chosen = { mechanism };
  for (const name of names) {
    const value = by(name).value;
    if (offered[mechanism].includes(name) && value !== "") chosen[name] = Number(value);
  }
  if (!by("of-adjacency").hidden) chosen.adjacency = by("adjacency").value;
  return chosen;
}

function controls() {
  const takes = offered[by("mechanism").value];
  for (const name of names) by("of-" + name).hidden = !takes.includes(name);
  by("of-adjacency").hidden = !takes.includes("epsilon");
}

function texts(parent, messages, kind) {
  for (const text of messages) make("p", text, parent, { className: kind });
}

async function facts() {
  const number = ++latest;
  let answer;
  try { answer = await ask("/facts", settings()); } catch (error) { answer = { error: error.message }; }
  if (number !== latest) return;
  const place = by("facts");
  place.replaceChildren();
  if (answer.error) { make("p", answer.error, place, { className: "failed" }); by("run").disabled = true; return; }
  by("run").disabled = timer !== null;
  make("p", answer.guarantee, place);
  texts(place, answer.warnings, "warning");
  if (answer.facts.length) numbers(answer.facts, place);
  make("p", "The release, with these settings:", place, { className: "hint" });
  make("code", answer.command, place);
}

function numbers(pairs, parent) {
  const list = make("dl", null, parent, { className: "numbers" });
  for (const [name, value] of pairs) {
    const box = make("div", null, list);
    make("dt", name, box);
    make("dd", value || "none", box);
  }
}

function table(content, parent) {
  const region = make("div", null, parent, { className: "wide", tabIndex: 0 });
  region.setAttribute("role", "region");
  region.setAttribute("aria-label", content.caption);
  const element = make("table", null, region);
  make("caption", content.caption, element);
  const head = make("tr", null, make("thead", null, element));
  for (const name of content.head) make("th", name, head, { scope: "col" });
  const body = make("tbody", null, element);
  for (const row of content.rows) line(row, body);
}

function line(row, body) {
  const tr = make("tr", null, body);
  row.forEach((cell, k) => make(k ? "td" : "th", cell, tr, k ? {} : { scope: "row" }));
}

function show(result) {
  const place = by("result");
  place.replaceChildren();
  by("found").hidden = false;
  numbers(result.numbers, place);
  texts(place, result.confidential, "warning");
  table(result.table, place);
  const pictures = make("div", null, place, { className: "pictures" });
  for (const picture of result.pictures) {
    const figure = make("figure", null, pictures);
    make("img", null, figure, { src: picture.src, alt: picture.alt, width: picture.width });
    if (picture.caption) make("figcaption", picture.caption, figure, { className: "hint" });
  }
}

function remember(number, asked, result) {
  by("history").hidden = false;
  const row = { "try": String(number), ...asked, ...Object.fromEntries(result.numbers) };
  for (const name of Object.keys(row)) if (!columns.includes(name)) columns.push(name);
  rows.push(row);
  const head = by("history").querySelector("thead tr");
  head.replaceChildren();
  for (const name of columns) make("th", name, head, { scope: "col" });
  const body = by("history").querySelector("tbody");
  body.replaceChildren();
  for (const earlier of rows) line(columns.map((name) => earlier[name] === undefined ? "" : String(earlier[name])), body);
}
const rows = [];
let asked = null;

function running(is) {
  by("run").disabled = is;
  by("cancel").disabled = !is;
  by("working").hidden = !is;
  if (is && timer === null) timer = setInterval(look, 400);
  if (!is && timer !== null) { clearInterval(timer); timer = null; }
}

async function look() {
  let state;
  try { state = await ask("/state"); } catch (error) {
    running(false);
    by("status").textContent = "The server does not answer: " + error.message;
    return;
  }
  report(state);
}

function report(state) {
  if (state.phase === "running") {
    by("status").textContent = "Try " + state.number + ": " + state.step + ", " + state.seconds + " s.";
    return;
  }
  running(false);
  if (state.number === seen) return;
  seen = state.number;
  if (state.phase === "done") {
    by("status").textContent = "Try " + state.number + " is done.";
    show(state.result);
    remember(state.number, asked, state.result);
  } else {
    by("status").textContent = state.phase === "failed" ? "Failed: " + state.error : "Cancelled.";
  }
}

by("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  asked = settings();
  try {
    report(await ask("/start", asked));
    running(true);
  } catch (error) { by("status").textContent = error.message; }
});
by("cancel").addEventListener("click", async () => report(await ask("/cancel")));
by("slider").addEventListener("input", () => {
  by("epsilon").value = Number((10 ** Number(by("slider").value)).toPrecision(2));
});
by("form").addEventListener("input", (event) => {
  if (event.target.id === "epsilon" && Number(by("epsilon").value) > 0) by("slider").value = Math.log10(Number(by("epsilon").value));
  controls();
  clearTimeout(pending);
  pending = setTimeout(facts, 250);
});
controls();
facts();

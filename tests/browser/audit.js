// What WCAG 2.1 AA asks for and a program can see: contrast, names, alternatives, headings, reflow.
function shownElement(e) { return e.checkVisibility() && e.getClientRects().length > 0; }
function name(e) {
  const label = e.labels && e.labels.length ? e.labels[0].textContent : "";
  return e.tagName + ":" + (e.getAttribute("aria-label") || label || e.textContent).trim().slice(0, 60);
}
function focusable() {
  return [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
    .filter((e) => shownElement(e) && !e.disabled && e.tabIndex >= 0)
    .filter((e) => e.type !== "radio" || e.checked);  // the Tab key goes to one of a group
}
function ring(e) {
  const style = getComputedStyle(e);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}
function channels(text) {
  const found = text.match(/[\d.]+/g).map(Number);
  return found.length === 3 ? [...found, 1] : found;
}
function luminance(rgb) {
  const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function background(e) {
  for (let at = e; at; at = at.parentElement) {
    const found = channels(getComputedStyle(at).backgroundColor);
    if (found[3] > 0) return found;
  }
  return [255, 255, 255, 1];
}
function contrast(e) {
  const [a, b] = [channels(getComputedStyle(e).color), background(e)].map((c) => luminance(c.slice(0, 3)));
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}
function audit(fewest) {
  const wrong = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.textContent.trim() || ["SCRIPT", "STYLE", "OPTION"].includes(e.tagName) || !shownElement(e) || e.disabled) continue;
    texts += 1;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast(e) < (large ? 3 : 4.5)) wrong.push("contrast " + contrast(e).toFixed(2) + ": " + name(e));
    if (size < 12) wrong.push("text of " + size + " px: " + name(e));
  }
  if (texts < fewest) wrong.push("only " + texts + " texts");
  for (const e of document.querySelectorAll("img")) {
    if (!e.alt) wrong.push("no alternative: " + e.src.slice(0, 40));
    if (!e.naturalWidth) wrong.push("not rendered: " + e.alt);
  }
  for (const e of focusable()) if (name(e).endsWith(":")) wrong.push("no name: " + e.outerHTML.slice(0, 80));
  for (const e of document.querySelectorAll("th")) if (!e.scope) wrong.push("no scope: " + e.textContent);
  let level = 0;
  for (const e of document.querySelectorAll("h1, h2, h3, h4")) {
    const here = Number(e.tagName[1]);
    if (here > level + 1) wrong.push("heading out of order: " + e.textContent);
    level = here;
  }
  if (document.querySelectorAll("h1, main").length !== 2) wrong.push("one h1 and one main");
  if (!document.documentElement.lang || !document.title) wrong.push("no language or title");
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 0) wrong.push("wider than the window by " + wide + " px");
  return wrong;
}

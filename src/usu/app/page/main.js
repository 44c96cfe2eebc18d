// The page: what is on it, and what a person does with it.
import { Explanation } from "./explanation.js";
import { COLOURS } from "./palette.js";
import { Stage } from "./stage.js";
import { loadTexts, percent, short, t } from "./texts.js";
import { ask } from "./wire.js";

const $ = (id) => document.getElementById(id);
const made = (tag, values = {}, ...inside) => {
  const one = Object.assign(document.createElement(tag), values);
  one.append(...inside);
  return one;
};
const stage = new Stage($("canvas"), $("divider"));
const it = new Explanation(told);
let visit, fileName, timer;

const temperature = () => Number((10 ** Number($("temperature").value)).toPrecision(2));
const budget = () => document.querySelector("[name=budget]:checked").value;
const view = (side = "right") => ({ way: $(`${side}Way`).value, budget: budget(), temperature: temperature() });
const same = (a, b) => ["way", "budget", "temperature"].every((name) => a[name] === b[name]);
const leftTarget = () => ($("leftClass").value === "" ? it.target : Number($("leftClass").value));
const fail = (error) => {
  if (error.status === 409) return;
  trouble(error instanceof TypeError ? t("lostServer") : error.message);
  idle();
};
const trouble = (text) => {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
};
/** Something that may fail, told where it does. */
const tried = (work) => (...given) => Promise.resolve(work(...given)).catch(fail);

async function begin() {
  await loadTexts();
  theme(localStorage.getItem("usu-theme"));
  try {
    visit = await (await ask("api/visit")).json();
  } catch (error) {
    trouble(error.status === 403 && self !== top ? t("cookie") : error.message);
    return;
  }
  $("model").textContent = visit.model.name;
  for (const name of visit.samples) {
    const picture = made("img", { src: `api/samples/${name}`, alt: "", width: 132, height: 96 });
    const button = made("button", { className: "sample" }, picture, made("span", { textContent: t(`sampleNames.${name}`) }));
    button.dataset.sample = name;
    button.onclick = tried(() => open(`api/samples/${name}`, undefined, `${name}.png`));
    $("samples").append(made("li", {}, button));
  }
  for (const side of ["leftWay", "rightWay"]) {
    for (const way of visit.ways) $(side).append(new Option(t(`ways.${way}`), way));
  }
  [$("leftWay").value, $("rightWay").value] = ["bilinear", "usu"];
  for (const name of COLOURS) $("colours").append(new Option(t(`colourNames.${name}`), name));
  for (const depth of [0, 1, 2]) $("depth").append(new Option(t(`depths.${depth}`), depth));
  for (const name of visit.budgets) {
    const radio = made("input", { type: "radio", name: "budget", value: name, checked: name === "soft" });
    radio.onchange = replay;
    $("budgets").append(made("label", {}, radio, made("span", { textContent: t(`budgetNames.${name}`) })));
  }
  $("temperature").value = Math.log10(visit.soft);
  for (const name of visit.model.classes ?? []) $("names").append(new Option(name));
  listen();
  const last = visit.pictures.at(-1);
  if (last) await tried(async () => shown(await it.reopen(last), last.target))();
  document.body.dataset.ready = "yes";
}

// -- opening

async function open(path, body, name) {
  trouble("");
  fileName = name;
  document.body.classList.add("busy");
  $("status").textContent = t("opening");
  try {
    const photo = await it.open(path, body);
    await shown(photo, null);
  } finally {
    document.body.classList.remove("busy");
  }
}

function upload(file) {
  if (!file) return trouble(t("noPicture"));
  const size = file.size / 1e6;
  if (size > visit.limits.megabytes) {
    return trouble(t("tooLarge", { size: size.toFixed(0), most: visit.limits.megabytes }));
  }
  return tried(() => open("api/pictures", file, file.name))();
}

async function shown(photo, target) {
  $("start").hidden = true;
  $("work").hidden = $("another").hidden = $("forget").hidden = false;
  $("depth").value = 0;
  document.body.dataset.state = "opened";
  stage.open(photo, it.about);
  restore();
  listClasses();
  $("canvas").focus({ preventScroll: true });
  await explain(target ?? it.about.top[0].index);
}

function home() {
  it.forget();
  stage.clear();
  $("start").hidden = false;
  $("work").hidden = $("another").hidden = $("forget").hidden = true;
  document.body.dataset.state = "start";
  $("choose").focus();
}

// -- classes

function listClasses() {
  const top = [...it.about.top];
  $("top").replaceChildren(
    ...top.map(({ index, name, probability }) => {
      const radio = made("input", { type: "radio", name: "class", value: index });
      radio.onchange = tried(() => explain(index));
      const bar = made("span", { className: "bar" });
      bar.style.width = `${100 * probability}%`;
      const label = name.split(",")[0];
      return made("label", { className: "class", title: name }, radio, bar, made("span", { textContent: label }),
        made("span", { className: "number", textContent: percent(probability, 1) }));
    }),
  );
  $("leftClass").replaceChildren(new Option(t("sameClass"), ""), ...top.map((one) => new Option(one.name.split(",")[0], one.index)));
}

function otherClass() {
  const text = $("other").value.trim();
  const names = visit.model.classes ?? [];
  const index = /^\d+$/.test(text) ? Number(text) : names.indexOf(text);
  if (index < 0 || text === "") return;
  tried(() => explain(index))();
}

// -- explaining

async function explain(target, more = {}) {
  it.target = target;
  for (const radio of document.querySelectorAll("[name=class]")) radio.checked = Number(radio.value) === target;
  $("leftClass").value = "";
  trouble("");
  restore();
  $("stop").hidden = $("further").hidden = true;
  $("remark").textContent = "";
  document.body.dataset.state = "explaining";
  if (!it.now) $("status").textContent = t("waiting");
  await it.explain(target, view(), { depth: Number($("depth").value), ...more });
}

/** Something came from the server. */
function told(kind, frame, asked) {
  if (kind === "map") return mapCame(frame, asked);
  if (kind === "measured") return measured(frame);
  if (kind === "without") return gone(frame);
  if (frame.target !== it.target) return; // of a class for the left side alone
  const { arrays } = it.now;
  stage.grid = arrays.coarse.shape;
  if (arrays.segments) stage.parts(arrays.segments);
  if (kind === "first") {
    $("status").textContent = t("first");
    const notes = frame.instead ? [t("instead", frame), ...frame.notes] : frame.notes;
    $("remark").textContent = notes.join(" ");
    $("stop").hidden = false;
    meter(0);
  } else {
    const stability = frame.stability === null ? "" : frame.stability.toFixed(2);
    $("status").textContent = t(kind === "look" ? "sharpening" : stability ? "done" : "doneWithout", { ...frame, stability });
    meter(frame.stability);
    if (kind === "done") {
      if (frame.remark) $("remark").textContent = frame.remark;
      idle();
      $("further").hidden = frame.evaluations >= visit.limits.evaluations;
      document.body.dataset.passes = frame.passes;
      document.body.dataset.evaluations = frame.evaluations;
    }
  }
  document.body.dataset.looks = kind === "first" ? 0 : Number(document.body.dataset.looks) + 1;
  layers();
  // the frame has the map as it was asked for; somebody may have moved a slider since
  if (same(asked, view())) showRight();
  else tried(() => it.map("right", it.target, view()))();
  if ($("leftWay").value === "bilinear") stage.side("left", arrays.bilinear);
  else tried(() => it.map("left", it.target, view("left")))();
  names();
  if (kind === "done") measureSoon(0);
  if (kind === "done") document.body.dataset.state = "done";
}

function idle() {
  $("stop").hidden = true;
  if (document.body.dataset.state === "explaining") document.body.dataset.state = "done";
}

function meter(stability) {
  $("bar").style.width = `${100 * (stability ?? 0)}%`;
}

/** The right side: the map, or one of the layers it was made of. */
function showRight() {
  if (!it.now) return;
  const { arrays } = it.now;
  const layer = $("layer").value || "map";
  stage.side("right", arrays[layer] ?? arrays.map, layer === "scores" ? [0, 1] : null);
}

function layers() {
  const { arrays } = it.now;
  const kept = $("layer").value;
  const depths = Object.keys(arrays).filter((name) => name.startsWith("heterogeneity_"));
  const options = [["map", t("layers.map")]];
  for (const name of ["scores", "uncertainty"]) if (arrays[name]) options.push([name, t(`layers.${name}`)]);
  for (const name of depths) options.push([name, t("layers.heterogeneity", { depth: name.split("_")[1] })]);
  $("layer").replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  $("layer").value = options.some(([value]) => value === kept) ? kept : "map";
}

function mapCame(frame, asked) {
  const side = asked.side;
  if (side === "right") {
    if (asked.target !== it.target) return;
    it.note(it.target, { D1: frame.D1, mass: frame.mass, arrays: { map: frame.arrays.map } });
    showRight();
    tell1(frame);
    measureSoon(400);
  } else {
    stage.side("left", frame.arrays.map);
  }
  document.body.dataset.drawn = (Number(document.body.dataset.drawn) || 0) + 1;
  names();
}

function names() {
  const className = (target) => (it.known.get(target)?.name ?? "").split(",")[0];
  const versus = leftTarget() !== it.target;
  $("leftName").textContent = t(`ways.${$("leftWay").value}`) + (versus ? ` · ${className(leftTarget())}` : "");
  $("rightName").textContent = t(`ways.${$("rightWay").value}`) + (versus ? ` · ${className(it.target)}` : "");
}

/** A slider or a choice: the scores are kept, only the redistribution runs again. */
function replay() {
  $("temperature").nextElementSibling.value = temperature().toFixed(2);
  $("budgetHint").textContent = t(`budgetHints.${budget()}`);
  if (!it.now) return;
  tried(() => it.map("right", it.target, view()))();
  if ($("leftWay").value === "usu") redrawLeft();
}

const redrawLeft = tried(async () => {
  const target = leftTarget();
  const known = it.known.get(target);
  if (!known?.arrays.scores && target !== it.target) {
    const shown = it.target;
    await it.explain(target, view("left")); // the same passes serve it
    if (it.target !== shown) return;
  }
  if ($("leftWay").value === "bilinear") {
    stage.side("left", it.known.get(target).arrays.bilinear);
    names();
  } else await it.map("left", target, view("left"));
});

// -- what if it were gone?

const checkPart = tried(async (part) => {
  if (!it.now) return;
  $("checkHint").textContent = t("checking");
  try {
    await it.without(it.target, part);
  } finally {
    $("checkHint").textContent = t("checkHint");
  }
});

function gone(frame) {
  const { raw, shape: [height, width] } = frame.arrays.view;
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = raw[3 * i + c];
    image.data[4 * i + 3] = 255;
  }
  const canvas = made("canvas", { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
  stage.changed = canvas;
  $("frame").classList.add("gone");
  stage.draw();
  $("before").textContent = percent(frame.before, 1);
  $("after").textContent = percent(frame.after, 1);
  $("change").textContent = t("change", { name: it.now.name.split(",")[0], share: percent(frame.share) });
  const [top] = frame.top;
  $("nowTop").textContent = top.index === it.target ? "" : t("nowTop", { name: top.name.split(",")[0], probability: percent(top.probability) });
  $("verdict").hidden = false;
  $("verdict").dataset.after = frame.after;
  $("verdict").dataset.passes = frame.passes;
}

function restore() {
  stage.changed = stage.box = stage.picked = null;
  $("verdict").hidden = true;
  $("frame").classList.remove("gone");
  stage.draw();
}

function partAt(place) {
  const labels = it.now?.arrays.segments;
  const index = labels ? stage.index(place, labels.shape) : -1;
  return index < 0 ? null : labels.raw[index];
}

function check(place) {
  const label = partAt(place);
  if (label === null) return;
  stage.box = null;
  stage.picked = label;
  checkPart({ segments: [label] });
}

// -- reading values

function read(place) {
  const found = it.now?.arrays;
  if (!found?.map) return;
  const index = stage.index(place, found.map.shape);
  if (index < 0) {
    $("hover").textContent = t("outside");
    return;
  }
  const side = place[0] < leftEdge() ? "left" : "right";
  const numbers = stage.sides[side]?.numbers ?? found.map;
  numbers.peak ??= Math.max(Math.abs(numbers.low), Math.abs(numbers.high)) || 1;
  const [rows, columns] = found.coarse.shape;
  const [row, column] = [Math.floor(place[1] * rows), Math.floor(place[0] * columns)];
  found.coarse.total ??= Array.from(found.masses.raw, (_, i) => Math.abs(found.masses.at(i))).reduce((a, b) => a + b, 0) || 1;
  const mass = percent(found.masses.at(row * columns + column) / found.coarse.total, 1);
  const label = partAt(place);
  const known = label !== null && found.effects;
  const segment = known
    ? t("hoverSegment", { label, score: short(found.effects.at(label)), error: short(found.errors.at(label)) })
    : "";
  const value = percent(numbers.at(index) / numbers.peak, 1);
  $("hover").textContent = t("hover", { value, row: row + 1, column: column + 1, mass, segment });
}

/** Where the divider stands in parts of the model's input. */
function leftEdge() {
  const [left, , width] = stage.place;
  return (stage.split * stage.canvas.width - left) / width;
}

// -- desiderata

function measureSoon(wait) {
  clearTimeout(timer);
  for (const row of $("desiderata").rows) row.classList.add("old");
  timer = setTimeout(tried(async () => it.now && it.measure(it.target, view())), wait);
}

const stateOf = (name, value, promised) =>
  value === null ? "unknown" : value <= KEPT[name] ? "kept" : promised.includes(name) ? "broken" : "open";
const KEPT = { D1: 1e-6, mass: 1e-6, D2: 1e-3, D3: 1e-4, D4: 1e-6 };

function measured(found) {
  const rows = Object.keys(KEPT).map((name) => {
    const [title, text, how] = t(`desiderata.${name}`);
    const value = found[name];
    const state = stateOf(name, value, found.promised);
    const told = value === null ? "" : how.replace("{value}", short(value)).replace("{percent}", percent(value, 1));
    const row = made("tr", { className: state }, made("th", { scope: "row", textContent: title }),
      made("td", {}, text, made("small", { textContent: told })), made("td", { className: "state", textContent: t(state) }));
    row.dataset.name = name;
    row.dataset.value = value ?? "";
    return row;
  });
  $("desiderata").tBodies[0].replaceChildren(...rows);
}

/** D1 and the total come with every map; the rest is measured a moment later. */
function tell1(frame) {
  for (const row of $("desiderata").rows) {
    const value = frame[row.dataset.name];
    if (value === undefined) continue;
    row.dataset.value = value;
    row.querySelector("small").textContent = t(`desiderata.${row.dataset.name}`)[2].replace("{value}", short(value));
    row.className = stateOf(row.dataset.name, value, frame.promised);
    row.querySelector(".state").textContent = t(row.className);
  }
}

// -- taking away

function save(blob, name) {
  const link = made("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const take = (kind, ending) =>
  tried(async () => {
    const share = 0.05;
    save(await it.take(kind, it.target, view(), { share, name: fileName }), `usu-${it.target}${ending}`);
  });

// -- listening

function theme(wanted) {
  if (wanted) document.documentElement.dataset.theme = wanted;
}

function listen() {
  $("choose").onclick = () => $("file").click();
  $("file").onchange = () => upload($("file").files[0]), ($("file").value = "");
  $("another").onclick = home;
  $("forget").onclick = tried(async () => {
    const path = it.path;
    home();
    await ask(path, { method: "DELETE" });
    trouble(t("forgotten"));
  });
  $("theme").onclick = () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    theme(dark ? "light" : "dark");
    localStorage.setItem("usu-theme", dark ? "light" : "dark");
  };
  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
    addEventListener(kind, (event) => {
      event.preventDefault();
      document.body.classList.toggle("over", kind === "dragenter" || kind === "dragover");
      if (kind === "drop") upload([...event.dataTransfer.files].find((file) => file.type.startsWith("image/")));
    });
  }
  addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
    if (file) upload(file);
  });
  $("stop").onclick = tried(() => {
    $("status").textContent = t("stopping");
    return it.stop();
  });
  $("further").onclick = tried(() =>
    explain(it.target, { further: true, evaluations: Math.min(visit.limits.evaluations, Math.max(600, 2 * it.now.evaluations)) }));
  $("other").onchange = otherClass;
  $("restore").onclick = () => (restore(), $("canvas").focus());

  const look = { opacity: (v) => v / 100, quantile: (v) => v / 100 };
  for (const [name, value] of Object.entries(look)) {
    $(name).oninput = () => {
      stage.look[name] = value(Number($(name).value));
      $(name).nextElementSibling.value = `${$(name).value} %`;
      stage.draw();
    };
    $(name).oninput();
  }
  $("colours").onchange = () => ((stage.look.name = $("colours").value), stage.draw());
  for (const name of ["cells", "segments", "grey"]) {
    $(name).onchange = () => ((stage.look[name] = $(name).checked), stage.draw());
    stage.look[name] = $(name).checked;
  }
  $("layer").onchange = showRight;
  $("rightWay").onchange = replay;
  $("leftWay").onchange = $("leftClass").onchange = redrawLeft;
  $("temperature").oninput = replay;
  $("depth").onchange = tried(() => explain(it.target, { further: $("depth").value === "0" ? undefined : true }));
  replay();

  $("npz").onclick = take("npz", ".npz");
  $("mask").onclick = take("mask", "-mask.png");
  $("folder").onclick = take("folder", ".zip");
  $("png").onclick = tried(async () => save(await stage.png(), `usu-${it.target}.png`));
  $("python").onclick = tried(async () => {
    $("code").querySelector("pre").textContent = await (await it.take("python", it.target, view(), { name: fileName })).text();
    $("copy").textContent = t("copy");
    $("code").showModal();
  });
  $("copy").onclick = tried(async () => {
    await navigator.clipboard.writeText($("code").querySelector("pre").textContent);
    $("copy").textContent = t("copied");
  });
  $("closeCode").onclick = () => $("code").close();
  onDivider($("divider"));
  onCanvas($("canvas"));
}

function onDivider(divider) {
  const move = (split) => {
    stage.split = Math.min(1, Math.max(0, split));
    stage.draw();
  };
  divider.onpointerdown = (event) => (divider.setPointerCapture(event.pointerId), event.preventDefault(), divider.focus());
  divider.onpointermove = (event) => {
    if (!divider.hasPointerCapture(event.pointerId)) return;
    const frame = stage.canvas.getBoundingClientRect();
    move((event.clientX - frame.left) / frame.width);
  };
  divider.onkeydown = (event) => {
    const step = { ArrowLeft: -0.02, ArrowDown: -0.02, ArrowRight: 0.02, ArrowUp: 0.02, PageDown: -0.1, PageUp: 0.1, Home: -1, End: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    move(stage.split + step);
  };
}

function onCanvas(canvas) {
  let start = null;
  canvas.onpointerdown = (event) => {
    if (event.button !== 0) return;
    start = stage.where(event);
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = (event) => {
    if (!stage.photo) return;
    const place = stage.where(event);
    if (!start) return read(place);
    const wide = Math.abs(place[0] - start[0]) > 0.02 || Math.abs(place[1] - start[1]) > 0.02;
    if (!wide && !stage.box) return;
    const inside = (v) => Math.min(1, Math.max(0, v));
    const [xs, ys] = [0, 1].map((i) => [start[i], place[i]].map(inside).sort((a, b) => a - b));
    stage.picked = null;
    stage.box = [xs[0], ys[0], xs[1], ys[1]];
    stage.draw();
  };
  canvas.onpointerup = (event) => {
    if (!start) return;
    const place = stage.where(event);
    start = null;
    const box = stage.box;
    if (box && !stage.changed && (box[2] - box[0]) * (box[3] - box[1]) > 0) checkPart({ box });
    else if (stage.changed) restore();
    else check(place);
  };
  canvas.onpointercancel = () => ((start = null), restore());
  canvas.onkeydown = (event) => {
    const big = event.shiftKey ? 0.1 : 0.02;
    const move = { ArrowLeft: [-big, 0], ArrowRight: [big, 0], ArrowUp: [0, -big], ArrowDown: [0, big] }[event.key];
    if (move) {
      event.preventDefault();
      const from = stage.cross ?? [0.5, 0.5];
      stage.cross = from.map((v, i) => Math.min(0.999, Math.max(0, v + move[i])));
      read(stage.cross);
      stage.draw();
    } else if (event.key === "Enter" && stage.cross) check(stage.cross);
    else if (event.key === "Escape") restore();
  };
  canvas.onblur = () => ((stage.cross = null), stage.draw());
}

begin();

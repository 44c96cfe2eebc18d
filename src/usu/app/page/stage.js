// The canvas: the photograph, a map on either side of the divider, lines, and what a pointer or the keyboard marks.
import { painted } from "./palette.js";

/** Borders between different labels, in pixels of the map; of one label alone if it is given. */
function borders({ raw, shape: [height, width] }, only = null) {
  const path = new Path2D();
  const differs = (a, b) => raw[a] !== raw[b] && (only === null || raw[a] === only || raw[b] === only);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const here = y * width + x;
      if (x + 1 < width && differs(here, here + 1)) path.moveTo(x + 1, y), path.lineTo(x + 1, y + 1);
      if (y + 1 < height && differs(here, here + width)) path.moveTo(x, y + 1), path.lineTo(x + 1, y + 1);
    }
  }
  return path;
}

export class Stage {
  constructor(canvas, divider) {
    Object.assign(this, { canvas, divider });
    this.context = canvas.getContext("2d");
    this.split = 0.5;
    this.look = { name: "inferno", opacity: 0.75, quantile: 0.995, cells: false, segments: false, grey: false };
    this.clear();
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
  }

  clear() {
    this.photo = this.about = this.labels = this.grid = this.changed = this.box = this.cross = this.picked = null;
    this.sides = { left: null, right: null };
    this.cache = new Map();
  }

  /** A photograph, and where the model's input sits in it. */
  open(photo, about) {
    this.clear();
    Object.assign(this, { photo, about });
    this.draw();
  }

  side(name, numbers, limits = null) {
    this.sides[name] = numbers && { numbers, limits };
    this.draw();
  }

  parts(labels) {
    if (labels !== this.labels) this.cache.delete("segments");
    this.labels = labels;
  }

  /** The place of the model's input on the canvas: left, top, width, height. */
  get place() {
    const scale = this.canvas.width / this.about.width;
    const [top, left, bottom, right] = this.about.box.map((v) => v * scale);
    return [left, top, right - left, bottom - top];
  }

  /** From a pointer's event to (x, y) in parts of the model's input. */
  where(event) {
    const frame = this.canvas.getBoundingClientRect();
    const [left, top, width, height] = this.place;
    const scale = this.canvas.width / frame.width;
    return [((event.clientX - frame.left) * scale - left) / width, ((event.clientY - frame.top) * scale - top) / height];
  }

  /** The index of the pixel at (x, y) in an array over the input; -1 outside. */
  index([x, y], [height, width]) {
    if (!(x >= 0 && x < 1 && y >= 0 && y < 1)) return -1;
    return Math.floor(y * height) * width + Math.floor(x * width);
  }

  fit() {
    const room = this.canvas.parentElement.parentElement;
    const most = Math.max(260, Math.min(innerHeight - 210, 820));
    const width = Math.min(room.clientWidth, (most * this.about.width) / this.about.height);
    const height = (width * this.about.height) / this.about.width;
    const dense = Math.min(2, devicePixelRatio || 1);
    const [w, h] = [Math.round(width * dense), Math.round(height * dense)];
    if (this.canvas.width !== w || this.canvas.height !== h) [this.canvas.width, this.canvas.height] = [w, h];
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.canvas.parentElement.style.width = `${width}px`;
  }

  draw() {
    if (!this.photo) return;
    this.fit();
    this.paint(this.context, this.canvas.width, this.canvas.height);
    this.divider.style.left = `${100 * this.split}%`;
    this.divider.setAttribute("aria-valuenow", Math.round(100 * this.split));
  }

  /** Everything on a context of any size: the screen's, or a picture's to take away. */
  paint(context, width, height, extras = true) {
    const { look, about } = this;
    const scale = width / about.width;
    const [top, left, bottom, right] = about.box.map((v) => v * scale);
    const place = [left, top, right - left, bottom - top];
    context.imageSmoothingEnabled = true;
    context.imageSmoothingQuality = "high";
    context.filter = look.grey ? "grayscale(1)" : "none";
    context.drawImage(this.photo, 0, 0, width, height);
    if (this.changed) context.drawImage(this.changed, ...place);
    context.filter = "none";
    const seen = new Path2D();
    seen.rect(0, 0, width, height);
    seen.rect(...place);
    context.fillStyle = "rgba(20, 20, 24, 0.62)"; // what the model does not see
    context.fill(seen, "evenodd");
    for (const name of this.changed ? [] : ["left", "right"]) {
      if (!this.sides[name]) continue;
      context.save();
      context.beginPath();
      context.rect(name === "left" ? 0 : width * this.split, 0, width * (name === "left" ? this.split : 1), height);
      context.clip();
      context.drawImage(this.coloured(name), ...place);
      context.restore();
    }
    if (look.segments && this.labels) {
      if (!this.cache.has("segments")) this.cache.set("segments", borders(this.labels));
      this.lines(context, place, this.cache.get("segments"), this.labels.shape, "rgba(255,255,255,.75)", 1);
    }
    if (look.cells && this.grid) this.lines(context, place, ...this.gridLines());
    if (!extras) return;
    if (this.picked !== null && this.labels) {
      this.lines(context, place, borders(this.labels, this.picked), this.labels.shape, "#fff", 2.5);
    }
    if (this.box) {
      const [x0, y0, x1, y1] = this.box;
      const corner = [place[0] + x0 * place[2], place[1] + y0 * place[3], (x1 - x0) * place[2], (y1 - y0) * place[3]];
      context.lineWidth = 2 * (devicePixelRatio || 1);
      for (const [style, dash] of [["#000", []], ["#fff", [6, 6]]]) {
        context.strokeStyle = style;
        context.setLineDash(dash);
        context.strokeRect(...corner);
      }
      context.setLineDash([]);
    }
    if (this.cross) {
      const [x, y] = [place[0] + this.cross[0] * place[2], place[1] + this.cross[1] * place[3]];
      for (const [style, wide] of [["#000", 4], ["#fff", 2]]) {
        context.strokeStyle = style;
        context.lineWidth = wide;
        context.beginPath();
        context.moveTo(x - 14, y), context.lineTo(x + 14, y), context.moveTo(x, y - 14), context.lineTo(x, y + 14);
        context.stroke();
      }
    }
  }

  /** A side's map in colour; made anew only when something about it has changed. */
  coloured(name) {
    const { numbers, limits } = this.sides[name];
    const { opacity, quantile } = this.look;
    const key = JSON.stringify([this.look.name, opacity, quantile, limits]);
    const known = this.cache.get(name);
    if (known?.numbers === numbers && known.key === key) return known.canvas;
    const canvas = painted(numbers, { name: this.look.name, opacity, quantile, limits });
    this.cache.set(name, { numbers, key, canvas });
    return canvas;
  }

  gridLines() {
    const [rows, columns] = this.grid;
    const path = new Path2D();
    for (let i = 1; i < columns; i++) path.moveTo(i, 0), path.lineTo(i, rows);
    for (let i = 1; i < rows; i++) path.moveTo(0, i), path.lineTo(columns, i);
    return [path, this.grid, "rgba(255,255,255,.55)", 1];
  }

  lines(context, [left, top, width, height], path, [rows, columns], style, wide) {
    const scaled = new Path2D();
    scaled.addPath(path, new DOMMatrix([width / columns, 0, 0, height / rows, left, top]));
    context.lineCap = "square";
    for (const [colour, more] of [["rgba(0,0,0,.5)", 1.5], [style, 0]]) {
      context.strokeStyle = colour;
      context.lineWidth = (wide + more) * (devicePixelRatio || 1);
      context.stroke(scaled);
    }
  }

  /** What is on the screen, at the photograph's own resolution. */
  async png() {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [this.photo.width, this.photo.height];
    this.paint(canvas.getContext("2d"), canvas.width, canvas.height, false);
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  }
}

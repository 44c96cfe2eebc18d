// Colour maps that can be read without colour vision, as 17 colours each; between them is interpolated.
const ANCHORS = {
  inferno: "0000040b0724210c4a3d096557106e71196e8a226aa32c61bc3754d24644e45a31f1731df98e09fcac11f9cb35f2ea69fcffa4",
  viridis: "44015448186a472d7b4240863b528b33638d2c728e26828e21918c1fa08828ae803fbc735ec96284d44baddc30d8e219fde725",
  cividis: "00224e002e6a1a386f32436d434e6c535a6d61656f6f70737d7c788c88789b9476aba072bcae6ccdbb63dec958f0d846fee838",
  // for maps of both signs: blue below zero, red above
  signs: "0530611752902a71b23f8ec06bacd19bc9e0c2ddece0ecf3f7f6f6fbe5d8fbccb4f5aa89e48066d05548ba2832930e2667001f",
};
export const COLOURS = ["inferno", "viridis", "cividis"];

const PARSED = Object.fromEntries(
  Object.entries(ANCHORS).map(([name, hex]) => [name, hex.match(/../g).map((pair) => parseInt(pair, 16))]),
);

/** r, g, b (0 to 255) of a position from 0 to 1. */
function colour(name, position) {
  const place = position * 16;
  const low = Math.min(15, Math.floor(place));
  const at = (channel, index) => PARSED[name][3 * index + channel];
  return [0, 1, 2].map((c) => Math.round(at(c, low) + (place - low) * (at(c, low + 1) - at(c, low))));
}

/** The value below which the part `quantile` of the numbers lies, by counting. */
export function quantileOf(numbers, quantile) {
  if (!numbers.counts) {
    numbers.counts = new Uint32Array(65536);
    for (const value of numbers.raw) numbers.counts[value]++;
  }
  let left = quantile * numbers.raw.length;
  for (let v = 0; v < 65536; v++) {
    left -= numbers.counts[v];
    if (left <= 0) return numbers.low + numbers.step * v;
  }
  return numbers.low + numbers.step * 65535;
}

/**
 * Pixels of a map: the stronger, the more of its colour and the less of the picture. One table of 65536 colours serves
 * every pixel, so that a slider answers at once.
 */
export function painted(numbers, { name, opacity, quantile, limits }) {
  const top = limits ? limits[1] : quantileOf(numbers, quantile);
  const bottom = limits ? limits[0] : Math.min(0, quantileOf(numbers, 1 - quantile));
  const signs = bottom < 0 && top > 0;
  const reach = Math.max(-bottom, top) || 1;
  const span = top - bottom || 1;
  const steps = 1024;
  const ramp = Uint32Array.from({ length: steps + 1 }, (_, i) => {
    const [r, g, b] = colour(signs ? "signs" : name, i / steps);
    const strength = signs ? Math.abs((2 * i) / steps - 1) : bottom < 0 ? 1 - i / steps : i / steps;
    return (Math.round(255 * opacity * (0.45 + 0.55 * strength)) << 24) | (b << 16) | (g << 8) | r;
  });
  const table = new Uint32Array(65536);
  for (let v = 0; v < 65536; v++) {
    const value = numbers.low + numbers.step * v;
    const position = signs ? 0.5 + value / reach / 2 : (value - bottom) / span;
    table[v] = ramp[Math.round(steps * Math.min(1, Math.max(0, position)))];
  }
  const [height, width] = numbers.shape;
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const raw = numbers.raw;
  for (let i = 0; i < raw.length; i++) pixels[i] = table[raw[i]];
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// Frames from the server: u32 header length, u32 body length, header as JSON, body; see wire.py.

/** An array as it came: whole numbers `raw`, which stand for low + step * raw (or themselves if step is null). */
export class Numbers {
  constructor(raw, shape, low, step) {
    Object.assign(this, { raw, shape, low: step === null ? 0 : low, step: step === null ? 1 : step });
  }
  at(index) {
    return this.low + this.step * this.raw[index];
  }
  get high() {
    return this.low + this.step * this.raw.reduce((a, b) => Math.max(a, b), 0);
  }
}

const TYPES = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array };

export function readFrame(buffer) {
  const view = new DataView(buffer);
  const header = view.getUint32(0, true);
  const values = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, header)));
  const arrays = {};
  for (const one of values.arrays) {
    const count = one.shape.reduce((a, b) => a * b, 1);
    const start = 8 + header + one.start;
    const type = TYPES[one.type];
    const raw = new type(buffer.slice(start, start + count * type.BYTES_PER_ELEMENT));
    arrays[one.name] = new Numbers(raw, one.shape, one.low, one.step);
  }
  return { ...values, arrays };
}

/** The frames of a stream, one by one. */
export async function* readFrames(stream) {
  const reader = stream.getReader();
  let held = new Uint8Array(0);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const joined = new Uint8Array(held.length + value.length);
    joined.set(held);
    joined.set(value, held.length);
    held = joined;
    while (held.length >= 8) {
      const view = new DataView(held.buffer, held.byteOffset);
      const size = 8 + view.getUint32(0, true) + view.getUint32(4, true);
      if (held.length < size) break;
      yield readFrame(held.slice(0, size).buffer);
      held = held.slice(size);
    }
  }
}

/** Ask the server; a refusal is an Error with the server's sentence. */
export async function ask(path, options = {}) {
  const response = await fetch(path, { cache: "no-store", ...options });
  if (!response.ok) {
    const found = await response.json().catch(() => ({}));
    throw Object.assign(new Error(found.error || response.statusText), { status: response.status });
  }
  return response;
}

export const post = (path, body, signal) =>
  ask(path, { method: "POST", body: JSON.stringify(body), signal, headers: { "Content-Type": "application/json" } });

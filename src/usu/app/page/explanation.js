// What is known of the picture on the screen: asks the server, and tells what came.
import { ask, post, readFrame, readFrames } from "./wire.js";

export class Explanation {
  /** `tell(kind, frame)`: first, look, done, map, without, measured, error. */
  constructor(tell) {
    this.tell = tell;
    this.forget();
  }

  forget() {
    this.leave?.abort();
    this.about = this.target = this.leave = null;
    this.known = new Map(); // class -> its last frames, joined
    this.pending = {}; // side -> what to ask for next, while an answer is on its way
  }

  get path() {
    return `api/pictures/${this.about.id}`;
  }

  get now() {
    return this.known.get(this.target);
  }

  async open(path, body) {
    this.forget();
    const about = await (await ask(path, { method: "POST", body })).json();
    return this.reopen(about);
  }

  async reopen(about) {
    const blob = await (await ask(`api/pictures/${about.id}`)).blob();
    this.about = about;
    return createImageBitmap(blob);
  }

  /** Explain a class, coarse to fine. A later call ends this one. */
  async explain(target, view, more = {}) {
    this.leave?.abort();
    const leave = (this.leave = new AbortController());
    const began = this.about.id;
    try {
      const response = await post(`${this.path}/explain`, { target, ...view, ...more }, leave.signal);
      for await (const frame of readFrames(response.body)) {
        if (this.about?.id !== began || leave.signal.aborted) return;
        if (frame.kind === "error") throw Object.assign(new Error(frame.error), { status: frame.status });
        this.note(target, frame);
        this.tell(frame.kind, frame, view);
      }
    } catch (error) {
      if (!leave.signal.aborted) throw error;
    } finally {
      if (this.leave === leave) this.leave = null;
    }
  }

  note(target, frame) {
    const before = this.known.get(target) ?? { arrays: {} };
    this.known.set(target, { ...before, ...frame, arrays: { ...before.arrays, ...frame.arrays } });
  }

  stop() {
    return post(`${this.path}/stop`, {});
  }

  /** A map for one side. While one is on its way only the newest wish is kept. */
  async map(side, target, view) {
    const wish = { side, target, ...view };
    if (this.pending[side] !== undefined) {
      this.pending[side] = wish;
      return;
    }
    this.pending[side] = null;
    try {
      for (let next = wish; next; next = this.pending[side]) {
        this.pending[side] = null;
        const began = this.about.id;
        const response = await post(`${this.path}/map`, next);
        const frame = readFrame(await response.arrayBuffer());
        if (this.about?.id === began) this.tell("map", frame, next);
      }
    } catch (error) {
      if (error.status !== 409) throw error; // replaced by a newer one
    } finally {
      delete this.pending[side];
    }
  }

  async measure(target, view) {
    const found = await (await post(`${this.path}/measure`, { target, ...view })).json();
    this.tell("measured", found, { target, ...view });
  }

  async without(target, part) {
    const response = await post(`${this.path}/without`, { target, ...part });
    const frame = readFrame(await response.arrayBuffer());
    this.tell("without", frame);
  }

  async take(kind, target, view, more) {
    return (await post(`${this.path}/export/${kind}`, { target, ...view, ...more })).blob();
  }
}

/** The events of a schedule, in order: a hash over all, and the last ones as text. */

/** Events that are kept as text. */
const KEPT = 100;
const FNV_BASIS = 0x811c_9dc5;
const FNV_PRIME = 0x0100_0193;

/** The trace of one schedule. */
export class Trace {
  readonly #last: string[] = [];
  #hash = FNV_BASIS;
  #count = 0;

  /** The last events, oldest first. */
  get last(): readonly string[] {
    return this.#last;
  }

  /** Identifies the sequence of all events. */
  get digest(): string {
    return `${this.#count}:${(this.#hash >>> 0).toString(16).padStart(8, '0')}`;
  }

  note(event: string): void {
    this.#count += 1;
    let hash = this.#hash;
    for (let i = 0; i < event.length; i++) hash = Math.imul(hash ^ event.charCodeAt(i), FNV_PRIME);
    this.#hash = hash;
    this.#last.push(event);
    if (this.#last.length > KEPT) this.#last.shift();
  }
}

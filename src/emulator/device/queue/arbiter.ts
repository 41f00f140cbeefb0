/**
 * The arbiter of one QMAN: grants the section between an acquiring and a releasing ARB_POINT to one stream at a time, by priority,
 * then in order of requests. It does not detect the quiet period, in which no other stream can run: its caller does.
 */

interface ArbiterRequest {
  readonly stream: object;
  readonly priority: number;
}

/** One arbiter. Streams are compared by identity only. */
export class Arbiter {
  #holder: object | undefined;
  readonly #requests: ArbiterRequest[] = [];

  /** Requests the arbiter; a repeated request has no effect. Returns true if the stream holds it. */
  take(stream: object, priority: number): boolean {
    if (this.#holder === stream) return true;
    if (!this.#requests.some((request) => request.stream === stream)) this.#requests.push({ stream, priority });
    return false;
  }

  /** Releases the arbiter if the stream holds it. */
  release(stream: object): void {
    if (this.#holder === stream) this.#holder = undefined;
  }

  /** Ends the quiet period: grants a free arbiter to the best request. Returns true if it was granted. */
  grant(): boolean {
    if (this.#holder !== undefined || this.#requests.length === 0) return false;
    const best = this.#requests.reduce((left, right) => (right.priority > left.priority ? right : left));
    this.#requests.splice(this.#requests.indexOf(best), 1);
    this.#holder = best.stream;
    return true;
  }

  /** Drops the holder and all requests. */
  reset(): void {
    this.#holder = undefined;
    this.#requests.length = 0;
  }
}

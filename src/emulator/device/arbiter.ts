/**
 * The arbiter of one QMAN: which of its streams may go on between an ARB_POINT that takes it and the one that gives it back. Higher
 * priority first, then who came first. It does not know when nothing else can run any more (the quiet period): its caller does.
 */

interface ArbiterRequest {
  readonly stream: object;
  readonly priority: number;
}

/** One arbiter. Streams are known by identity only. */
export class Arbiter {
  #holder: object | undefined;
  readonly #requests: ArbiterRequest[] = [];

  /** Asks for the arbiter; asking again changes nothing. True when the stream holds it. */
  take(stream: object, priority: number): boolean {
    if (this.#holder === stream) return true;
    if (!this.#requests.some((request) => request.stream === stream)) this.#requests.push({ stream, priority });
    return false;
  }

  /** Gives it back, if the stream holds it. */
  release(stream: object): void {
    if (this.#holder === stream) this.#holder = undefined;
  }

  /** The quiet period is over: lets the best request have a free arbiter. True when one got it. */
  grant(): boolean {
    if (this.#holder !== undefined || this.#requests.length === 0) return false;
    const best = this.#requests.reduce((left, right) => (right.priority > left.priority ? right : left));
    this.#requests.splice(this.#requests.indexOf(best), 1);
    this.#holder = best.stream;
    return true;
  }

  /** It is not held, and not waited for. */
  reset(): void {
    this.#holder = undefined;
    this.#requests.length = 0;
  }
}

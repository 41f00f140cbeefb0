/** A fault that `npm run mutate` plants, and the suites that should find it if no unit test does. */

/** One fault: a string of a source that is replaced. */
export interface Fault {
  /** Relative to the repository. */
  readonly file: string;
  /** Occurs exactly once in the file. */
  readonly before: string;
  readonly after: string;
  /** The promise that it breaks, in a few words. */
  readonly breaks: string;
  /** Why it makes no difference; then it is not planted. */
  readonly equivalent?: string;
  /** Why no test finds it. `npm run mutate` then reports the reason, not a failure. */
  readonly unfound?: string;
}

/** Faults of one part of the sources. */
export interface Area {
  readonly name: string;
  /** Words of the paths of the suites in tier ci that cover it, the likeliest first. */
  readonly suites: readonly string[];
  readonly faults: readonly Fault[];
}

/** The text with a fault. @throws Error if the text before it is not there exactly once */
export function planted(text: string, { file, before, after }: Fault): string {
  const parts = text.split(before);
  if (parts.length !== 2) throw new Error(`${file} has ${parts.length - 1} times: ${before}`);
  return parts.join(after);
}

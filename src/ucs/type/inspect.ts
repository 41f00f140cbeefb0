/**
 * The representation of API objects in `util.inspect`, `console.log` and JSON: the relevant facts instead of implementation fields; and strings cut to the
 * columns of their display.
 */

/** The method that `util.inspect` of Node.js calls. */
const INSPECT = Symbol.for('nodejs.util.inspect.custom');

/** The property that holds the displayed name of an object. */
export const SHOWN_NAME: unique symbol = Symbol('shown name');

/** Displayed facts of an object; undefined ones are omitted. */
export type InspectFacts = Readonly<Record<string, string | number | bigint | undefined>>;

/** Makes `JSON.stringify` print the bigints of an object as strings, because JSON does not have bigints. */
export function inJson<T extends object>(facts: T): T {
  const toJSON = (): object =>
    Object.fromEntries(
      Object.entries(facts).map(([fact, value]: [string, unknown]) => [
        fact,
        typeof value === 'bigint' ? String(value) : value,
      ]),
    );
  return Object.defineProperty(facts, 'toJSON', { value: toJSON });
}

/**
 * Makes `util.inspect` show instances of a class as `Context { engine: native 0.1.0, cards: emulated }`, and `JSON.stringify` print an object of the same
 * facts, with bigints as strings.
 * @param factsOf must not throw, whatever the state of the object
 */
export function showAs<T extends object>(
  type: { readonly prototype: T },
  name: string,
  factsOf: (object: T) => InspectFacts,
): void {
  const knownOf = (object: T): [string, string | number | bigint | undefined][] =>
    // The prototype itself does not have the fields.
    object === type.prototype ? [] : Object.entries(factsOf(object)).filter(([, value]) => value !== undefined);
  Object.defineProperty(type.prototype, SHOWN_NAME, { value: name });
  Object.defineProperty(type.prototype, INSPECT, {
    value(this: T): string {
      const facts = knownOf(this).map(([fact, value]) => `${fact}: ${value}`);
      return facts.length === 0 ? name : `${name} { ${facts.join(', ')} }`;
    },
  });
  Object.defineProperty(type.prototype, 'toJSON', {
    value(this: T): object {
      const facts = knownOf(this).map(([fact, value]) => [fact, typeof value === 'bigint' ? String(value) : value]);
      return Object.fromEntries(facts) as object;
    },
  });
}

/** The string, or its beginning and an ellipsis: at most `columns` characters. */
export function clip(text: string, columns: number): string {
  return text.length <= columns ? text : `${text.slice(0, columns - 1)}\u2026`;
}

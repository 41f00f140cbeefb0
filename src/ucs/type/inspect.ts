/**
 * The representation of API objects in `util.inspect`, `console.log` and JSON: the relevant facts, instead of the fields of the implementation. Texts cut to
 * the columns that they are shown in.
 */

/** The method that `util.inspect` of Node.js calls. */
const INSPECT = Symbol.for('nodejs.util.inspect.custom');

/** The property of an object with the name that it is shown by. */
export const SHOWN_NAME: unique symbol = Symbol('shown name');

/** The facts shown of an object; undefined ones are omitted. */
export type InspectFacts = Readonly<Record<string, string | number | bigint | undefined>>;

/** Gives an object of facts a JSON in which a bigint is text, as JSON has none. */
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
 * Makes `util.inspect` show the instances of a class as `Context { engine: native 0.1.0, cards: emulated }`, and JSON as an object of these facts, in
 * which a bigint is text.
 * @param factsOf must not throw, whatever the state of the object
 */
export function showAs<T extends object>(
  type: { readonly prototype: T },
  name: string,
  factsOf: (object: T) => InspectFacts,
): void {
  const knownOf = (object: T): [string, string | number | bigint | undefined][] =>
    // The prototype has none of the fields.
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

/** The text, or its beginning and an ellipsis: at most `columns` characters. */
export function clip(text: string, columns: number): string {
  return text.length <= columns ? text : `${text.slice(0, columns - 1)}\u2026`;
}

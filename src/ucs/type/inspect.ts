/**
 * The representation of API objects in `util.inspect` and `console.log`: one line with the relevant facts, instead of the fields of the
 * implementation.
 */

/** The method that `util.inspect` of Node.js calls. */
const INSPECT = Symbol.for('nodejs.util.inspect.custom');

/** The facts shown of an object; undefined ones are omitted. */
export type InspectFacts = Readonly<Record<string, string | number | bigint | undefined>>;

/**
 * Makes `util.inspect` show the instances of a class as `Context { engine: native 0.1.0, cards: emulated }`.
 * @param factsOf must not throw, whatever the state of the object
 */
export function showAs<T extends object>(
  type: { readonly prototype: T },
  name: string,
  factsOf: (object: T) => InspectFacts,
): void {
  Object.defineProperty(type.prototype, INSPECT, {
    value(this: T): string {
      // The prototype has none of the fields.
      if (this === type.prototype) return name;
      const known = Object.entries(factsOf(this)).filter(([, value]) => value !== undefined);
      return `${name} { ${known.map(([fact, value]) => `${fact}: ${value}`).join(', ')} }`;
    },
  });
}

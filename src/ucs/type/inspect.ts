/** How objects of the API are shown by `util.inspect` and `console.log`: one line with what a reader wants to know, instead of the fields of the implementation. */

/** The method that `util.inspect` of Node.js calls. */
const INSPECT = Symbol.for('nodejs.util.inspect.custom');

/** What is shown of an object; facts that are undefined are left out. */
export type InspectFacts = Readonly<Record<string, string | number | bigint | undefined>>;

/**
 * Has the instances of a class shown as `Context { engine: native 0.1.0, cards: emulated }`.
 * @param factsOf must not throw, whatever state the object is in
 */
export function showAs<T extends object>(
  type: { readonly prototype: T },
  name: string,
  factsOf: (object: T) => InspectFacts,
): void {
  Object.defineProperty(type.prototype, INSPECT, {
    value(this: T): string {
      // The prototype itself has none of the fields.
      if (this === type.prototype) return name;
      const known = Object.entries(factsOf(this)).filter(([, value]) => value !== undefined);
      return `${name} { ${known.map(([fact, value]) => `${fact}: ${value}`).join(', ')} }`;
    },
  });
}

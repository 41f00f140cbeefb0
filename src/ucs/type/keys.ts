/** The names of a record as its type lists them, which Object.keys() gives as text. */

/** The keys of a record. It must have no other properties than its type says, as records written in the source have not. */
export function keysOf<T extends object>(record: T): (keyof T & string)[] {
  return Object.keys(record) as (keyof T & string)[];
}

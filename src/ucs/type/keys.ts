/** The keys of a record with the type that they have there; Object.keys() gives text. */

/** The keys of a record, in their order. Only for records without properties beside those of their type, such as constants. */
export function keysOf<T extends object>(record: T): (keyof T & string)[] {
  return Object.keys(record) as (keyof T & string)[];
}

/** Object.keys() with the type of the record's keys instead of string. */

/** The keys of a record, in their order. Only for records that cannot have properties beyond those of their type, such as constants. */
export function keysOf<T extends object>(record: T): (keyof T & string)[] {
  return Object.keys(record) as (keyof T & string)[];
}

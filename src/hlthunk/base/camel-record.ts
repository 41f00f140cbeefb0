/** Kernel structs with their field names in camelCase: `dram_free_mem` becomes `dramFreeMem`. Values are unchanged. */

type CamelCase<S extends string> = S extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : S;

/** `T` with the names of its fields in camelCase. */
export type CamelRecord<T> = { readonly [K in keyof T & string as CamelCase<K>]: T[K] };

/** Renames the fields of a decoded struct. */
export function camelRecord<T extends object>(values: T): CamelRecord<T> {
  const entries = Object.entries(values).map(([name, value]) => [camelCase(name), value]);
  return Object.fromEntries(entries) as CamelRecord<T>;
}

function camelCase(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

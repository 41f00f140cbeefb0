/** Formats byte counts, times, rates and tables. */

/** Line below figures that were measured on emulated cards. */
export const EMULATED_NOTE = 'emulated: the figures are those of memory copies here, not those of cards.';

/** What ucx_info and ucx_perftest call a megabyte (UCS_MBYTE). */
export const MEGABYTE: number = 2 ** 20;

const KIB = 1024;

/** Formats a byte count, such as `92.1 MiB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= KIB && unit < units.length - 1) {
    value /= KIB;
    unit += 1;
  }
  return unit === 0 ? `${bytes} B` : `${value.toFixed(1)} ${units[unit]}`;
}

/** Formats a time, such as `12.34 ms`. */
export function formatTime(ns: number): string {
  if (ns < 1e3) return `${ns.toFixed(0)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(2)} us`;
  return ns < 1e9 ? `${(ns / 1e6).toFixed(2)} ms` : `${(ns / 1e9).toFixed(2)} s`;
}

/** Formats a rate in GB/s, with GB = 10^9 bytes. */
export function formatRate(bytes: number, ns: number): string {
  return (bytes / ns).toFixed(2);
}

/** Formats rows; every column is padded to its widest cell. */
export function formatTable(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, cell] of row.entries()) widths[column] = Math.max(widths[column] ?? 0, cell.length);
  }
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

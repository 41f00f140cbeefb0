/** The transports of this library that are used together with libucp: those for cards, as far as UCX_TLS allows them, and `self`. */

/** Transports that libucp replaces. */
const LEFT_TO_LIBUCP = ['posix', 'cma', 'tcp'];
const OF_CARDS: readonly string[] = ['gaudi', 'gaudi_copy', 'gaudi_cpy', 'gaudi_ipc'];

/** UCX_TLS of the native context beside libucp, derived from the common one. */
export function nodeTls(text: string): string {
  const names = text.split(',').map((name) => name.trim());
  if (names.includes('all')) return `^${LEFT_TO_LIBUCP.join(',')}`;
  if (!text.startsWith('^')) return ['self', ...names.filter((name) => OF_CARDS.includes(name))].join(',');
  const excluded = text
    .slice(1)
    .split(',')
    .map((name) => name.trim());
  return `^${[...new Set([...excluded.filter((name) => OF_CARDS.includes(name)), ...LEFT_TO_LIBUCP])].join(',')}`;
}

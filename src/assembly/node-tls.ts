/** Which transports of this library stand beside libucp: those that know cards, as far as UCX_TLS allows them, and `self`. */

/** Transports whose work libucp does. */
const LEFT_TO_LIBUCP = ['posix', 'cma', 'tcp'];
const OF_CARDS: readonly string[] = ['gaudi', 'gaudi_copy', 'gaudi_cpy', 'gaudi_ipc'];

/** UCX_TLS for the node beside libucp, out of the one for both. */
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

/** Names and access flags of the protection of memory. */

import { describe, expect, it } from 'vitest';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { accessOf, accessWithout, deniedOf, type MemoryProtection, protectionOf, REMOTE_ACCESS } from './memory.ts';

const NAMES: readonly MemoryProtection[] = ['local-read', 'local-write', 'remote-read', 'remote-write'];
/** All lists that are not empty, in the order of the names. */
const LISTS = Array.from({ length: 15 }, (_, i) => NAMES.filter((_name, bit) => ((i + 1) & (1 << bit)) !== 0));

describe('protection', () => {
  it('is everything by default', () => {
    expect(accessOf(undefined)).toBe(MemAccess.ALL);
    expect(accessOf(NAMES)).toBe(MemAccess.ALL);
  });

  it.each(LISTS)('comes back as it went: %s %s %s %s', (...names) => {
    const list = names.filter((name) => name !== undefined);
    const access = accessOf([...list, ...list].reverse());
    expect(protectionOf(access)).toEqual(list);
    const canChange = list.includes('remote-read') && list.includes('remote-write');
    expect((access & MemAccess.REMOTE_ATOMIC) !== 0).toBe(canChange);
    expect(accessWithout(deniedOf(access))).toBe(access & REMOTE_ACCESS);
  });

  it('is unknown in a key of another version', () => {
    for (let denied = 4; denied < 256; denied++) expect(accessWithout(denied)).toBeUndefined();
  });
});

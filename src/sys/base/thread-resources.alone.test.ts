/**
 * What a worker thread leaves behind: the main thread of this process counts as a worker thread here. A mapping of an ended thread is one whose entry in the
 * table names a thread that does not exist.
 */

import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { mmap, munmap } from './libc.ts';
import { isOwnMapping, MapFlag, mapAnonymous, PROT_READ_WRITE, viewAt } from './mapped-memory.ts';
import {
  forgetDescriptor,
  forgetMapping,
  isThreadAlive,
  MappingKind,
  noteDescriptor,
  noteMapping,
  releaseAbandonedMappings,
} from './thread-resources.ts';

/** The calls of cleanup hooks of Node.js: names and descriptors. */
const { hooks } = vi.hoisted(() => ({ hooks: [] as [string, number][] }));

vi.mock('node:worker_threads', async (original) => ({
  ...(await original<typeof import('node:worker_threads')>()),
  isMainThread: false,
}));
vi.mock('./libc.ts', async (original) => {
  const libc = await original<typeof import('./libc.ts')>();
  const { koffi } = libc;
  const load: typeof koffi.load = (path) => {
    const library = koffi.load(path);
    const func = (name: string, ...rest: unknown[]): unknown =>
      /^napi_.*_hook$/.test(name)
        ? (_environment: unknown, _call: number, fd: number) => hooks.push([name, fd])
        : Reflect.apply(library.func, library, [name, ...rest]);
    return path === null ? ({ func } as unknown as typeof library) : library;
  };
  return { ...libc, koffi: { ...koffi, load } };
});

const BYTES = 3 * 4096;
/** Above the largest id that Linux gives. */
const NO_THREAD = 2 ** 22 + 5;
/** Layout of the table: see thread-resources.ts. */
const ENTRY_WORDS = 8;
const TABLE_BYTES: number = 2 ** 16 * ENTRY_WORDS * 4;

const mapped: number[] = [];
afterEach(() => {
  for (const address of mapped.splice(0)) munmap(address, BYTES);
});

function map(): number {
  const address = mmap(0, BYTES, PROT_READ_WRITE, MapFlag.PRIVATE | MapFlag.ANONYMOUS, -1, 0);
  mapped.push(address);
  return address;
}

/** The permissions of the mapping at an address; undefined if there is none. */
function permissionsAt(address: number): string | undefined {
  for (const line of readFileSync('/proc/self/maps', 'latin1').split('\n')) {
    const [range = '', permissions] = line.split(' ');
    const [from, to] = range.split('-').map((part) => Number.parseInt(part, 16));
    if (from! <= address && address < to!) return permissions;
  }
  return undefined;
}

/** The word of an entry that names its thread. */
function ownerWord(entry: number): Int32Array {
  const [line] = /^[0-9a-f]+-.*memfd:gaudi-ucx-mappings.*$/m.exec(readFileSync('/proc/self/maps', 'latin1'))!;
  const table = viewAt(Number.parseInt(line, 16), TABLE_BYTES);
  return new Int32Array(table, entry * ENTRY_WORDS * 4, 1);
}

describe('the mappings of a thread', () => {
  it('stay while it lives', () => {
    const address = map();
    const entry = noteMapping(address, BYTES, MappingKind.LOCAL);
    expect(entry).toBeGreaterThan(0);
    expect(ownerWord(entry)[0]).toBe(process.pid);
    expect(releaseAbandonedMappings()).toBe(0);
    expect(permissionsAt(address)).toBe('rw-p');
    forgetMapping(entry);
  });

  it('are released once after its end: LOCAL memory is unmapped, and the addresses of SHARED memory stay reserved', () => {
    const [local, shared, last] = [map(), map(), map()];
    const kinds = [MappingKind.LOCAL, MappingKind.SHARED, MappingKind.LOCAL];
    const entries = [local, shared, last].map((address, i) => noteMapping(address, BYTES, kinds[i]!));
    for (const entry of entries) ownerWord(entry)[0] = NO_THREAD;
    expect(releaseAbandonedMappings()).toBe(3);
    expect([local, shared, last].map(permissionsAt)).toEqual([undefined, '---p', undefined]);
    expect(entries.map((entry) => ownerWord(entry)[0])).toEqual([0, 0, 0]);
    expect(releaseAbandonedMappings()).toBe(0);
  });

  it('are not released if it has unmapped them', () => {
    const address = map();
    const entry = noteMapping(address, BYTES, MappingKind.LOCAL);
    forgetMapping(entry);
    expect(ownerWord(entry)[0]).toBe(0);
    // Another thread may use the address by now.
    expect(releaseAbandonedMappings()).toBe(0);
    expect(permissionsAt(address)).toBe('rw-p');
  });

  it('are noted by those who map', () => {
    using memory = mapAnonymous(4096);
    expect(isOwnMapping(memory.address, 4096)).toBe(true);
    const table = ownerWord(1);
    const entries = Array.from(
      { length: 100 },
      (_, i) => new Int32Array(table.buffer, (i + 1) * ENTRY_WORDS * 4, 1)[0],
    );
    expect(entries).toContain(process.pid);
  });
});

describe('the descriptors of a thread', () => {
  it('are closed at its end by one hook each, unless they are given away before', () => {
    expect([noteDescriptor(1001), noteDescriptor(1002), noteDescriptor(1001), noteDescriptor(-9)]).toEqual([
      1001, 1002, 1001, -9,
    ]);
    forgetDescriptor(1001);
    forgetDescriptor(1001);
    forgetDescriptor(1003);
    expect(hooks).toEqual([
      ['napi_add_env_cleanup_hook', 1001],
      ['napi_add_env_cleanup_hook', 1002],
      ['napi_remove_env_cleanup_hook', 1001],
    ]);
  });
});

describe('a thread', () => {
  it('counts as alive unless the list of threads of its process lacks it', () => {
    expect([isThreadAlive(process.pid), isThreadAlive(NO_THREAD)]).toEqual([true, false]);
    // The threads of the process are hidden, or it has ended.
    expect(isThreadAlive(7, NO_THREAD)).toBe(true);
  });
});

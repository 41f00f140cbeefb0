/** Counts the garbage of operations, in the compiled package: vitest rewrites modules, and V8 allocates in them what it does not here. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const BENCH = join(import.meta.dirname, '../../../dist/bench/main.js');

/** V8 decides anew in each process which calls it inlines, and makes an object of a fraction or an address that it passes to others. */
const PROCESSES = 3;

/**
 * What has garbage in each of some processes: an operation that makes an object makes it in all.
 * @param isMet whether the line of an operation, which is part of the output, says that there is none
 */
function garbageOf(bench: string, names: readonly string[], isMet: (line: string) => boolean): readonly string[] {
  let left = names;
  let last = '';
  for (let i = 0; i < PROCESSES && left.length > 0; i++) {
    const { stdout } = spawnSync(process.execPath, ['--expose-gc', BENCH, bench], { encoding: 'utf8' });
    last = stdout;
    left = left.filter((name) => !isMet(new RegExp(`^garbage of one ${name} .*$`, 'm').exec(stdout)?.[0] ?? ''));
  }
  return left.length === 0 ? [] : [...left, last];
}

/** Operations over shared memory, all of them. */
const OPERATIONS = [
  'put',
  'get',
  'prepared list',
  'part of a prepared list',
  'prepared list with a flush',
  'add of 32 bits',
  'fetch-and-add of 32 bits',
  'fetch-and-add of 64 bits',
  'active message',
  'tagged message',
  'stream',
];

it('an operation of 8 bytes leaves no garbage', () => {
  expect(garbageOf('garbage', OPERATIONS, (line) => line.endsWith(' met'))).toEqual([]);
}, 60_000);

/** Operations that make no object, over transports whose operations take calls of the kernel; V8 allocates a few bytes for itself while it compiles. */
const WITHOUT_OBJECTS = [
  'put, tcp',
  'get, tcp',
  'prepared list, tcp',
  'active message, tcp',
  'tagged message, tcp',
  'stream, tcp',
  'get, HBM',
  'prepared list, HBM',
];
/** The smallest object of V8, a number. */
const OBJECT_BYTES = 16;

it('an operation over tcp or of a card makes no object', () => {
  const isMet = (line: string): boolean => Number(/([\d.]+) bytes/.exec(line)?.[1] ?? 'NaN') < OBJECT_BYTES;
  expect(garbageOf('garbage-of-transports', WITHOUT_OBJECTS, isMet)).toEqual([]);
}, 240_000);

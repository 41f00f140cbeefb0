/** Counts the garbage of operations, in the compiled package: vitest rewrites modules, and V8 allocates in them what it does not here. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const BENCH = join(import.meta.dirname, '../../dist/bench/main.js');

it('an operation of 8 bytes leaves no garbage', () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--expose-gc', BENCH, 'garbage'], {
    encoding: 'utf8',
  });
  expect([status, stderr], stdout).toEqual([0, '']);
  expect(stdout.match(/^garbage of one /gm)).toHaveLength(11);
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
/** V8 decides anew in each process which calls it inlines, and makes an object of a fraction or an address that it passes to others. */
const PROCESSES = 3;

it('an operation over tcp or of a card makes no object', () => {
  let left = WITHOUT_OBJECTS;
  let stdout = '';
  for (let i = 0; i < PROCESSES && left.length > 0; i++) {
    ({ stdout } = spawnSync(process.execPath, ['--expose-gc', BENCH, 'garbage-of-transports'], { encoding: 'utf8' }));
    left = left.filter((name) => {
      const [, found = 'NaN'] = new RegExp(`^garbage of one ${name} +([\\d.]+) bytes`, 'm').exec(stdout) ?? [];
      return !(Number(found) < OBJECT_BYTES);
    });
  }
  expect(left, stdout).toEqual([]);
}, 240_000);

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fstatSync, readdirSync } from 'node:fs';
import { expect, it } from 'vitest';
import { mapFile, PAGE_SIZE } from '../base/mapped-memory.ts';
import { close } from '../file/file.ts';
import { ftruncate, memfdCreate } from './memfd.ts';
import { ProcessMaps } from './process-maps.ts';

const descriptors = (): number => readdirSync('/proc/self/fd').length;

it('the mappings of a file are found with their offsets, and not those of others', () => {
  const [fd, other] = [memfdCreate('mapped'), memfdCreate('other')];
  for (const file of [fd, other]) ftruncate(file, 8 * PAGE_SIZE);
  using first = mapFile(fd, PAGE_SIZE, 5 * PAGE_SIZE);
  using second = mapFile(fd, 2 * PAGE_SIZE, 0);
  using _third = mapFile(other, PAGE_SIZE, 0);
  using maps = new ProcessMaps(process.pid);
  const { ino } = fstatSync(fd);
  const expected = [
    { start: first.address, end: first.address + PAGE_SIZE, writable: true, offset: BigInt(5 * PAGE_SIZE), ino },
    { start: second.address, end: second.address + 2 * PAGE_SIZE, writable: true, offset: 0n, ino },
  ];
  const found = maps.ofFile(ino);
  expect(found).toHaveLength(2);
  expect(found).toEqual(expect.arrayContaining(expected));
  for (const file of [fd, other]) close(file);
});

it('a process that executes another program has other mappings, and none after its end', async () => {
  const before = descriptors();
  const child = spawn('/bin/sh', ['-c', 'echo shell; read line; exec cat'], { stdio: ['pipe', 'pipe', 'inherit'] });
  await once(child.stdout, 'data');
  const held = descriptors();
  const maps = new ProcessMaps(child.pid!);
  expect([maps.exists, maps.exists, descriptors()]).toEqual([true, true, held + 1]);
  child.stdin.write('now\n');
  child.stdin.write('executed\n');
  await once(child.stdout, 'data');
  expect([maps.exists, descriptors()]).toEqual([true, held + 1]);
  const ended = once(child, 'close');
  child.stdin.end();
  await ended;
  expect([maps.exists, maps.isWritable(PAGE_SIZE, PAGE_SIZE), maps.ofFile(0)]).toEqual([false, false, []]);
  maps.close();
  expect(descriptors()).toBe(before);
});

it('a process that does not exist has none', () => {
  using maps = new ProcessMaps(2 ** 22);
  expect([maps.exists, maps.isWritable(PAGE_SIZE, PAGE_SIZE)]).toEqual([false, false]);
});

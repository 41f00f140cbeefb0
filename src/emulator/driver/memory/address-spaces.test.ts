import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { AddressSpaces } from './pinned-memory.ts';

const descriptors = (): number => readdirSync('/proc/self/fd').length;

describe('address spaces', () => {
  it('are opened once for a process, and closed when nothing of it is pinned', () => {
    const before = descriptors();
    const spaces = new AddressSpaces();
    const one = spaces.acquire(process.pid, process.pid, () => expect.fail('is not known yet'));
    const two = spaces.acquire(process.pid, process.pid, () => true);
    expect(two!.space).toBe(one!.space);
    expect(descriptors()).toBe(before + 1);
    one!.release();
    expect(descriptors()).toBe(before + 1);
    two!.release();
    expect(descriptors()).toBe(before);
    spaces.acquire(process.pid, process.pid, () => expect.fail('is closed'))!.release();
    expect(descriptors()).toBe(before);
  });

  it('are opened again for a process in which the memory to pin is not that of the known one', () => {
    const before = descriptors();
    const spaces = new AddressSpaces();
    const old = spaces.acquire(process.pid, process.pid, () => true);
    const next = spaces.acquire(process.pid, process.pid, () => false);
    expect(next!.space).not.toBe(old!.space);
    expect(descriptors()).toBe(before + 2);
    old!.release();
    expect(descriptors()).toBe(before + 1);
    next!.release();
    expect(descriptors()).toBe(before);
  });

  it('of a process that is gone are refused', () => {
    expect(new AddressSpaces().acquire(2 ** 22, 2 ** 22, () => true)).toBeUndefined();
  });
});

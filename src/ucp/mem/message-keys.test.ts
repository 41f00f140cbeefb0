import { describe, expect, it } from 'vitest';
import type { MdMemory } from '../../uct/api/memory.ts';
import type { MemoryDomain } from '../../uct/api/memory-domain.ts';
import type { MemoryHandle, RevocableKey } from './memory-handle.ts';
import { MessageKey, MessageKeys } from './message-keys.ts';

/** What the tests look at: registrations that have ended. */
class Registrations {
  readonly ended: string[] = [];
  readonly ofHandle: Set<RevocableKey> = new Set();

  key(name: string): MessageKey {
    const md = {
      memDereg: (memory: MdMemory & { live: boolean }) => {
        memory.live = false;
        this.ended.push(name);
      },
    };
    const published = [{ md: md as unknown as MemoryDomain, memory: { live: true } as unknown as MdMemory }];
    return new MessageKey(new Uint8Array(0), published, this.ofHandle);
  }
}

const handle = (): MemoryHandle => ({}) as MemoryHandle;

describe('the keys of a connection', () => {
  it('are made once for each memory, and again when they were revoked', () => {
    const registrations = new Registrations();
    const keys = new MessageKeys();
    const one = handle();
    const first = keys.acquire(one, () => registrations.key('first'));
    expect(keys.acquire(one, () => registrations.key('unused'))).toBe(first);
    expect(first.uses).toBe(2);
    expect(registrations.ofHandle.size).toBe(1);
    first.revoke();
    first.revoke();
    expect(registrations.ended).toEqual(['first']);
    expect(registrations.ofHandle.size).toBe(0);
    expect(keys.acquire(one, () => registrations.key('second'))).not.toBe(first);
  });

  it('are revoked with the connection', () => {
    const registrations = new Registrations();
    const keys = new MessageKeys();
    for (const name of ['a', 'b']) keys.acquire(handle(), () => registrations.key(name));
    keys.revoke();
    expect(registrations.ended).toEqual(['a', 'b']);
  });

  it('are bounded: the one that was used least recently goes, unless a message uses it', () => {
    const registrations = new Registrations();
    const keys = new MessageKeys();
    const handles = Array.from({ length: 66 }, handle);
    const made = handles.slice(0, 64).map((each, i) => keys.acquire(each, () => registrations.key(`${i}`)));
    for (const key of made.slice(1, 3)) key.uses -= 1;
    keys.acquire(handles[1]!, () => registrations.key('unused')).uses -= 1;
    keys.acquire(handles[64]!, () => registrations.key('64'));
    expect(registrations.ended).toEqual(['2']);
    keys.acquire(handles[65]!, () => registrations.key('65'));
    expect(registrations.ended).toEqual(['2', '1']);
  });
});

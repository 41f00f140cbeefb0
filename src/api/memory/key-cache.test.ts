import { describe, expect, it } from 'vitest';
import type { RemoteKey } from '../contract/memory.ts';
import { KeyCache } from './key-cache.ts';

const MEBIBYTE = 2 ** 20;
const LIMITS = { keysMax: 64, bytesMax: 256 * MEBIBYTE };

interface FakeKey {
  readonly byteLength: number;
  live: boolean;
  released: number;
  release(): void;
}

function fakeKey(byteLength = 64): FakeKey {
  return {
    byteLength,
    live: true,
    released: 0,
    release() {
      this.released += 1;
    },
  };
}

/** Acquires the key that `id` stands for. */
function acquire(cache: KeyCache<RemoteKey>, id: number, key: FakeKey): RemoteKey {
  return cache.acquire(Uint8Array.of(id, id >> 8), () => key as unknown as RemoteKey);
}

describe('the cache of remote keys', () => {
  it('unpacks the same bytes once, and keeps the key when it is given back', () => {
    const cache = new KeyCache<RemoteKey>(LIMITS);
    const key = fakeKey();
    const first = acquire(cache, 1, key);
    cache.release(first);
    expect(acquire(cache, 1, fakeKey())).toBe(first);
    cache.release(first);
    expect([key.released, cache.size]).toEqual([0, 1]);
    cache.close();
    expect([key.released, cache.size]).toEqual([1, 0]);
  });

  it('keeps a bounded number of keys and bytes, but never drops one that is in use', () => {
    const cache = new KeyCache<RemoteKey>(LIMITS);
    const used = fakeKey(512 * MEBIBYTE);
    const held = acquire(cache, 1000, used);
    const keys = Array.from({ length: 100 }, () => fakeKey());
    for (const [id, key] of keys.entries()) cache.release(acquire(cache, id, key));
    expect(cache.size).toBeLessThanOrEqual(64);
    expect(used.released).toBe(0);
    expect(keys[0]!.released).toBe(1);
    cache.release(held);
    cache.close();
    for (const key of [used, ...keys]) expect(key.released).toBe(1);
  });

  it('drops keys of memory that is gone, when the last use of it ends', () => {
    const cache = new KeyCache<RemoteKey>(LIMITS);
    const stale = fakeKey();
    const one = acquire(cache, 1, stale);
    const other = acquire(cache, 1, stale);
    cache.release(one, true);
    expect([stale.released, cache.size]).toEqual([0, 0]);
    cache.release(other);
    expect(stale.released).toBe(1);
    const dead = fakeKey();
    cache.release(acquire(cache, 2, dead));
    dead.live = false;
    cache.release(acquire(cache, 3, fakeKey()));
    expect(dead.released).toBe(1);
  });

  it('drops keys that are known to be dead whenever it is used, and unpacks them anew', () => {
    const cache = new KeyCache<RemoteKey>(LIMITS);
    const [known, used, dead] = [fakeKey(), fakeKey(), fakeKey()];
    cache.release(acquire(cache, 1, known));
    const held = acquire(cache, 2, used);
    cache.release(acquire(cache, 3, dead));
    dead.live = false;
    used.live = false;
    // A hit is enough; a key in use stays until it is released.
    cache.release(acquire(cache, 1, known));
    expect([known.released, used.released, dead.released, cache.size]).toEqual([0, 0, 1, 2]);
    cache.release(held);
    expect([used.released, cache.size]).toEqual([1, 1]);
    known.live = false;
    const next = fakeKey();
    expect(acquire(cache, 1, next)).toBe(next);
    expect([known.released, cache.size]).toEqual([1, 1]);
  });

  it('unpacks a dead key anew while it is in use', () => {
    const cache = new KeyCache<RemoteKey>(LIMITS);
    const [dead, next] = [fakeKey(), fakeKey()];
    const held = acquire(cache, 1, dead);
    dead.live = false;
    expect(acquire(cache, 1, next)).toBe(next);
    cache.release(held);
    expect([dead.released, next.released, cache.size]).toEqual([1, 0, 1]);
  });

  it('has keys of several peers, which may have the same bytes', () => {
    const cache = new KeyCache<RemoteKey>(LIMITS);
    const keys = [fakeKey(), fakeKey()] as const;
    const ofPeer = (peer: 0 | 1): RemoteKey =>
      cache.acquire(Uint8Array.of(1), () => keys[peer] as unknown as RemoteKey, peer);
    expect([ofPeer(0), ofPeer(1), ofPeer(0)]).toEqual([keys[0], keys[1], keys[0]]);
    expect(cache.size).toBe(2);
  });

  it('compares with its own copy: the bytes of a message are overwritten by the next one', () => {
    const cache = new KeyCache<RemoteKey>(LIMITS);
    const unpacked: Uint8Array[] = [];
    const bytes = Uint8Array.of(1, 2, 3);
    const acquireIn = (): RemoteKey =>
      cache.acquire(bytes, (kept) => {
        unpacked.push(kept);
        return fakeKey() as unknown as RemoteKey;
      });
    const first = acquireIn();
    bytes[2] = 4;
    const second = acquireIn();
    expect(second).not.toBe(first);
    bytes[2] = 3;
    expect(acquireIn()).toBe(first);
    expect(unpacked).toEqual([Uint8Array.of(1, 2, 3), Uint8Array.of(1, 2, 4)]);
    // A shorter key with the same first bytes is another one.
    expect(cache.acquire(bytes.subarray(0, 2), () => fakeKey() as unknown as RemoteKey)).not.toBe(first);
    cache.close();
  });
});

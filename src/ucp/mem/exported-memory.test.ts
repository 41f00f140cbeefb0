/** Memory keys: only the very key of memory that is still mapped finds it. */

import { describe, expect, it } from 'vitest';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { ExportedMemory, MEMORY_KEY_BYTES, type MemoryHandle } from './memory-handle.ts';

const ACCESS = MemAccess.REMOTE_PUT;

const mapped = (access: number = MemAccess.ALL): { mapped: boolean } & MemoryHandle =>
  ({ mapped: true, access }) as never;

describe('ExportedMemory', () => {
  it('finds memory by its key, wherever the key lies', () => {
    const exported = new ExportedMemory();
    const handles = [mapped(), mapped(), mapped()];
    const keys = handles.map((handle) => exported.keyOf(handle));
    expect(new Set(keys.map((key) => Buffer.from(key).toString('hex'))).size).toBe(3);
    for (const [i, key] of keys.entries()) {
      expect(key.byteLength).toBe(MEMORY_KEY_BYTES);
      expect(exported.keyOf(handles[i]!)).toEqual(key);
      const message = new Uint8Array(MEMORY_KEY_BYTES + 7);
      message.set(key, 5);
      expect(exported.find(message, 5, ACCESS)).toBe(handles[i]);
      expect(exported.find(message.subarray(2), 3, ACCESS)).toBe(handles[i]);
    }
  });

  it('finds nothing by a key with any bit changed, or cut off', () => {
    const exported = new ExportedMemory();
    const handles = [mapped(), mapped()];
    const key = exported.keyOf(handles[0]!);
    exported.keyOf(handles[1]!);
    for (let bit = 0; bit < MEMORY_KEY_BYTES * 8; bit++) {
      const forged = key.slice();
      forged[bit >> 3]! ^= 1 << (bit & 7);
      expect(exported.find(forged, 0, ACCESS), `bit ${bit}`).toBeUndefined();
    }
    for (let length = 0; length < MEMORY_KEY_BYTES; length++) {
      expect(exported.find(key.subarray(0, length), 0, ACCESS)).toBeUndefined();
    }
    expect(exported.find(key, 1, ACCESS)).toBeUndefined();
    expect(exported.find(new Uint8Array(MEMORY_KEY_BYTES), 0, ACCESS)).toBeUndefined();
  });

  it('finds memory only for an access that it permits', () => {
    const exported = new ExportedMemory();
    const handle = mapped(MemAccess.REMOTE_GET | MemAccess.LOCAL_WRITE);
    const key = exported.keyOf(handle);
    expect(exported.find(key, 0, MemAccess.REMOTE_GET)).toBe(handle);
    expect(exported.find(key, 0, MemAccess.REMOTE_PUT)).toBeUndefined();
    expect(exported.find(key, 0, MemAccess.REMOTE_GET | MemAccess.REMOTE_PUT)).toBeUndefined();
  });

  it('finds nothing after the key was revoked or the memory unmapped, and gives a new key then', () => {
    const exported = new ExportedMemory();
    const handle = mapped();
    const key = exported.keyOf(handle).slice();
    exported.revoke(handle);
    exported.revoke(handle);
    expect(exported.find(key, 0, ACCESS)).toBeUndefined();
    const next = exported.keyOf(handle);
    expect(next).not.toEqual(key);
    expect([exported.find(key, 0, ACCESS), exported.find(next, 0, ACCESS)]).toEqual([undefined, handle]);
    (handle as { mapped: boolean }).mapped = false;
    expect(exported.find(next, 0, ACCESS)).toBeUndefined();
  });
});

import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { getSeals, mapFile, mapShareable, SealFlag, shareableRange } from '../index.ts';

describe('shareable memory', () => {
  expectNoLeaks();

  it('is found by address, and shared with all mappings of its file', () => {
    const memory = mapShareable(3 * 4096);
    const range = shareableRange(memory.address + 4096, 8192);
    expect(range).toEqual({ fd: memory.fd, offset: 4096 });
    const other = mapFile(range!.fd, 8192, range!.offset);
    memory.u8[4096 + 7] = 42;
    expect(other.u8[7]).toBe(42);
    memory.close();
    memory.close();
    expect(other.u8[7]).toBe(42);
    other.close();
  });

  it('is not found for ranges beyond it, nor after its close', () => {
    const memory = mapShareable(5000);
    expect(shareableRange(memory.address, 8192)).toBeDefined();
    expect(shareableRange(memory.address, 8193)).toBeUndefined();
    expect(shareableRange(memory.address - 1, 100)).toBeUndefined();
    memory.close();
    expect(shareableRange(memory.address, 4096)).toBeUndefined();
  });

  it('needs no descriptor after its file is closed', () => {
    const memory = mapShareable(4096);
    memory.closeFile();
    memory.closeFile();
    expect(memory.fd).toBe(-1);
    expect(shareableRange(memory.address, 4096)).toBeUndefined();
    memory.u8[0] = 1;
    expect(memory.u8[0]).toBe(1);
    memory.close();
  });

  it('cannot change its length', () => {
    const memory = mapShareable(4096);
    const wanted = SealFlag.SHRINK | SealFlag.GROW | SealFlag.SEAL;
    expect(getSeals(memory.fd) & wanted).toBe(wanted);
    memory.close();
  });

  it.each([0, -1, 1.5, Number.NaN])('rejects %s bytes', (byteLength) => {
    expect(() => mapShareable(byteLength)).toThrow();
  });
});

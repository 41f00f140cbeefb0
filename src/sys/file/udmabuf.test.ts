import fs, { existsSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { describe, expect, it, vi } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import {
  addSeals,
  close,
  dup,
  Errno,
  ftruncate,
  mapFile,
  memfdCreate,
  OpenFlag,
  open,
  PAGE_SIZE,
  pipe2,
  SealFlag,
  Udmabuf,
} from '../index.ts';

const DEVICE = '/dev/udmabuf';
const UNAVAILABLE_REASON = new Udmabuf().unavailableReason;

/** A memfd with the seals. */
function memfd(byteLength: number, seals: number): number {
  const fd = memfdCreate('udmabuf-test', { sealing: true });
  ftruncate(fd, byteLength);
  addSeals(fd, seals);
  return fd;
}

describe('/dev/udmabuf', () => {
  expectNoLeaks();

  it('that is missing reports how to provide it, and creates nothing', () => {
    const device = new Udmabuf('/dev/no-such-device');
    expect(device.unavailableReason).toBe('/dev/no-such-device does not exist: load the udmabuf module');
    const fd = memfd(PAGE_SIZE, SealFlag.SHRINK);
    expect(() => device.create(fd, 0, PAGE_SIZE)).toThrow(expect.objectContaining({ errno: Errno.ENOENT }));
    close(fd);
  });

  it('that this user may not write reports the errno', () => {
    const spy = vi.spyOn(fs, 'accessSync').mockImplementation((path, mode = 0) => {
      expect(path).toBe('/dev/null');
      if ((mode & fs.constants.W_OK) !== 0) throw Object.assign(new Error('made up'), { errno: -Errno.EACCES });
    });
    syncBuiltinESMExports();
    try {
      expect(new Udmabuf('/dev/null').unavailableReason).toBe('this user cannot open /dev/null (EACCES)');
    } finally {
      spy.mockRestore();
      syncBuiltinESMExports();
    }
  });

  it('that is another device returns the errno of that device', () => {
    const fd = memfd(PAGE_SIZE, SealFlag.SHRINK);
    expect(() => new Udmabuf('/dev/null').create(fd, 0, PAGE_SIZE)).toThrow(
      expect.objectContaining({ errno: Errno.ENOTTY, message: expect.stringContaining('UDMABUF_CREATE') }),
    );
    close(fd);
  });

  it.skipIf(existsSync(DEVICE))('reports that this machine has none (needs a machine without /dev/udmabuf)', () => {
    expect(UNAVAILABLE_REASON).toBe('/dev/udmabuf does not exist: load the udmabuf module');
  });

  it.skipIf(UNAVAILABLE_REASON !== undefined)(
    'makes dma-bufs that show the bytes of the memfd (needs /dev/udmabuf)',
    () => {
      const device = new Udmabuf();
      const fd = memfd(4 * PAGE_SIZE, SealFlag.SHRINK);
      const dmabuf = device.create(fd, PAGE_SIZE, 2 * PAGE_SIZE);
      expect(device.byteLengthOf(dmabuf)).toBe(2 * PAGE_SIZE);
      const [whole, part] = [mapFile(fd, 4 * PAGE_SIZE, 0), mapFile(dmabuf, 2 * PAGE_SIZE, 0)];
      whole.u8[PAGE_SIZE + 5] = 77;
      expect(part.u8[5]).toBe(77);
      part.u8[6] = 78;
      expect(whole.u8[PAGE_SIZE + 6]).toBe(78);
      const unsealed = memfdCreate('udmabuf-test', { sealing: true });
      ftruncate(unsealed, PAGE_SIZE);
      expect(() => device.create(unsealed, 0, PAGE_SIZE)).toThrow(expect.objectContaining({ errno: Errno.EINVAL }));
      for (const mapping of [whole, part]) mapping.close();
      for (const each of [fd, dmabuf, unsealed]) close(each);
    },
  );
});

describe('a descriptor', () => {
  expectNoLeaks();

  it('that is not a dma-buf has no dma-buf length', () => {
    const device = new Udmabuf();
    const file = memfd(PAGE_SIZE, SealFlag.SHRINK);
    const [reading, writing] = pipe2(OpenFlag.CLOEXEC);
    const nothing = open('/dev/null', OpenFlag.CLOEXEC);
    for (const fd of [file, reading, writing, nothing]) {
      expect(device.byteLengthOf(fd)).toBe(undefined);
      close(fd);
    }
  });

  it('that is closed is an error', () => {
    const fd = dup(0);
    close(fd);
    expect(() => new Udmabuf().byteLengthOf(fd)).toThrow(expect.objectContaining({ errno: Errno.EBADF }));
  });
});

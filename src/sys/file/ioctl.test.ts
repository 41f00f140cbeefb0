import { describe, expect, it } from 'vitest';
import { Errno } from '../base/errno.ts';
import { allocateScratch } from '../base/scratch.ts';
import { memfdCreate } from '../memory/memfd.ts';
import { close, ioctl, ioctlAsync, pipe2, write } from './file.ts';

/** Number of readable bytes: `include/uapi/asm-generic/ioctls.h`. */
const FIONREAD = 0x541b;
/** A request number with the top bit set: HL_IOCTL_INFO of habanalabs. */
const HL_IOCTL_INFO = 0xc0184801;

describe.each([
  ['ioctl', async (fd: number, request: number, address: number) => ioctl(fd, request, address)],
  ['ioctlAsync', ioctlAsync],
])('%s', (_name, call) => {
  it('fills the block at the address', async () => {
    using block = allocateScratch(8);
    const [reader, writer] = pipe2();
    write(writer, new Uint8Array(5));
    expect(await call(reader, FIONREAD, block.address)).toBe(0);
    expect(block.words[0]).toBe(5);
    close(reader);
    close(writer);
  });

  it('returns the errno', async () => {
    using block = allocateScratch(24);
    const fd = memfdCreate('not-a-device');
    expect(await call(9999, HL_IOCTL_INFO, block.address)).toBe(-Errno.EBADF);
    expect(await call(fd, HL_IOCTL_INFO, block.address)).toBe(-Errno.ENOTTY);
    const [reader, writer] = pipe2();
    expect(await call(reader, FIONREAD, 4096)).toBe(-Errno.EFAULT);
    for (const open of [fd, reader, writer]) close(open);
  });
});

describe('ioctlAsync', () => {
  it('keeps results and errno of concurrent calls separate', async () => {
    const [reader, writer] = pipe2();
    using block = allocateScratch(8);
    const calls = Array.from({ length: 32 }, (_, index) =>
      index % 2 === 0 ? ioctlAsync(reader, FIONREAD, block.address) : ioctlAsync(9999, FIONREAD, block.address),
    );
    expect(await Promise.all(calls)).toEqual(calls.map((_, index) => (index % 2 === 0 ? 0 : -Errno.EBADF)));
    close(reader);
    close(writer);
  });
});

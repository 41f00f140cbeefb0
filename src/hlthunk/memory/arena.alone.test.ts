import { expect, it, vi } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { close as closeFd, openFileDescriptors } from '../../sys/index.ts';
import { GaudiErrorCode } from '../index.ts';

const full = vi.hoisted(() => ({ isFull: false }));
vi.mock('../../sys/index.ts', async (importOriginal) => {
  const sys = await importOriginal<typeof import('../../sys/index.ts')>();
  const dup = (fd: number): number => {
    if (full.isFull) throw new sys.SyscallError('fcntl', sys.Errno.EMFILE, `descriptor ${fd}`);
    return sys.dup(fd);
  };
  return { ...sys, dup };
});

const fixture = useEmulatedDevice();

it('an export without free descriptors fails with the documented code, and can be repeated', () => {
  const device = fixture.setUp();
  const block = device.memory.allocate(4096);
  closeFd(device.exportDmabuf(block).fd);
  const before = openFileDescriptors();
  full.isFull = true;
  expect(() => device.exportDmabuf(block)).toThrow(
    expect.objectContaining({
      code: GaudiErrorCode.OUT_OF_MEMORY,
      message: expect.stringContaining('EMFILE'),
      cause: expect.objectContaining({ code: 'ERR_SYSCALL_EMFILE' }),
    }),
  );
  full.isFull = false;
  expect(openFileDescriptors()).toBe(before);
  closeFd(device.exportDmabuf(block).fd);
});

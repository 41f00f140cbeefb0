import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type ScriptedCalls, scriptedCalls } from '../../../test/fixtures/driver/scripted-calls.ts';
import {
  allocateScratch,
  close,
  Errno,
  ftruncate,
  mappedMemoryStatistics,
  memfdCreate,
  openFileDescriptors,
  SyscallError,
} from '../../sys/index.ts';
import {
  DRM_IOCTLS,
  HABANALABS_IOCTLS,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  type IoctlNumbers,
  ioctlSize,
} from '../../uapi/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { EAGAIN_RETRIES_MAX, EINTR_RETRIES_MAX, KernelFile, SLICE_US_MAX } from './kernel-file.ts';
import { linuxSystemCalls, type SystemCalls } from './system-calls.ts';

function fileOver(calls: SystemCalls, numbers: IoctlNumbers = DRM_IOCTLS, clock = new ManualClock()): KernelFile {
  const fd = memfdCreate('card');
  return new KernelFile({ calls, clock, fd, path: '/dev/accel/accel0', numbers, onClose: () => {} });
}

/** Simulates the kernel, which zeroes the block of CB, CS, WAIT_CS and MEMORY on failure. */
function clearing(result: number): (request: number, block: Uint32Array) => number {
  return (_request, block) => {
    block.fill(0);
    return result;
  };
}

const modes = [
  ['ioctl', (file: KernelFile, request: number, block: Block) => Promise.resolve(file.ioctl(request, block))],
  ['ioctlAsync', (file: KernelFile, request: number, block: Block) => file.ioctlAsync(request, block)],
] as const;
type Block = ReturnType<typeof allocateScratch>;

describe.each(modes)('%s', (_name, call) => {
  it.each([
    ['drm', DRM_IOCTLS],
    ['habanalabs', HABANALABS_IOCTLS],
  ] as const)('forwards the bytes of every request of the %s family unchanged', async (_family, numbers) => {
    const requests = Object.values(numbers).filter((request) => request !== numbers.WAIT_CS || _name === 'ioctl');
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...requests),
        fc.uint8Array({ minLength: 56, maxLength: 56 }),
        fc.uint8Array({ minLength: 56, maxLength: 56 }),
        fc.integer({ min: -133, max: 0 }).filter((result) => result !== -Errno.EINTR && result !== -Errno.EAGAIN),
        async (request, input, answer, result) => {
          const size = ioctlSize(request);
          const calls = scriptedCalls((_request, block) => {
            new Uint8Array(block.buffer, block.byteOffset, size).set(answer.subarray(0, size));
            return result;
          });
          const file = fileOver(calls, numbers);
          using block = allocateScratch(56);
          block.u8.set(input);
          expect(await call(file, request, block)).toBe(result);
          expect(calls.trace).toEqual([{ request, bytes: Buffer.from(input.subarray(0, size)).toString('hex') }]);
          // The result is there, and nothing beyond the size of the request has changed.
          expect([...block.u8]).toEqual([...answer.subarray(0, size), ...input.subarray(size)]);
          file.close();
        },
      ),
      { numRuns: 60 },
    );
  });

  it('repeats after a signal with the input, which the driver has overwritten', async () => {
    const calls = scriptedCalls((request, block, index) => clearing(index < 5 ? -Errno.EINTR : 0)(request, block));
    const file = fileOver(calls);
    using block = allocateScratch(48);
    block.u8.fill(0xa5);
    expect(await call(file, DRM_IOCTLS.CS, block)).toBe(0);
    expect(calls.trace.map((entry) => entry.bytes)).toEqual(Array.from({ length: 6 }, () => 'a5'.repeat(48)));
    file.close();
  });

  it.each([
    ['EINTR', -Errno.EINTR, EINTR_RETRIES_MAX],
    ['EAGAIN', -Errno.EAGAIN, EAGAIN_RETRIES_MAX],
  ])('gives up on %s after a bounded number of retries and returns it', async (_errno, result, retries) => {
    const calls = scriptedCalls(clearing(result));
    const file = fileOver(calls);
    using block = allocateScratch(24);
    block.u8.fill(7);
    expect(await call(file, DRM_IOCTLS.CB, block)).toBe(result);
    expect(calls.trace).toHaveLength(retries + 1);
    expect(new Set(calls.trace.map((entry) => entry.bytes)).size).toBe(1);
    const pauses =
      _name === 'ioctl' ? (result === -Errno.EAGAIN ? calls.yields.count : retries) : calls.iterations.count;
    expect(pauses).toBe(retries);
    file.close();
  });

  it('rejects a request that is larger than its block, and any request after close', async () => {
    const calls = scriptedCalls(() => 0);
    const file = fileOver(calls);
    using block = allocateScratch(24);
    expect(await call(file, DRM_IOCTLS.CS, block)).toBe(-Errno.EFAULT);
    file.close();
    expect(await call(file, DRM_IOCTLS.INFO, block)).toBe(-Errno.EBADF);
    expect(calls.trace).toEqual([]);
  });

  it('returns the errno of the kernel for a file that is not a device', async () => {
    const file = fileOver(linuxSystemCalls);
    using block = allocateScratch(56);
    for (const request of Object.values(DRM_IOCTLS)) expect(await call(file, request, block)).toBe(-Errno.ENOTTY);
    file.close();
  });
});

describe('WAIT_CS by ioctlAsync', () => {
  const IN = HL_WAIT_CS_ARGS.in;
  const BUSY = HL_WAIT_CS_STATUS.BUSY;

  /** Returns BUSY after "waiting" for the given time, `busy` times, then `result` with `status`. */
  function driver(clock: ManualClock, busy: number, status: number, result = 0): ScriptedCalls {
    return scriptedCalls((_request, block, index) => {
      const timeoutUs = block[IN.words.timeout_us]!;
      block.fill(0);
      if (index >= busy) {
        block[0] = status;
        return result;
      }
      clock.advance(timeoutUs * 1000);
      block[0] = BUSY;
      return 0;
    });
  }

  function timeoutsOf(calls: ScriptedCalls, offset: number = IN.offsets.timeout_us): number[] {
    return calls.trace.map((entry) => Number(Buffer.from(entry.bytes, 'hex').readBigUInt64LE(offset)));
  }

  it('waits in slices and passes on the rest of the input unchanged', async () => {
    const clock = new ManualClock();
    const calls = driver(clock, 100, BUSY);
    const file = fileOver(calls, DRM_IOCTLS, clock);
    using block = allocateScratch(56);
    IN.encode({ seq: 0x1234567890n, timeout_us: 250_000n, ctx_id: 3 }, block.view);
    const rest = Buffer.from(block.u8).toString('hex', 16);
    expect(await file.ioctlAsync(DRM_IOCTLS.WAIT_CS, block)).toBe(0);
    expect(HL_WAIT_CS_ARGS.out.decode(block.view).status).toBe(BUSY);
    expect(timeoutsOf(calls)).toEqual([SLICE_US_MAX, SLICE_US_MAX, 50_000]);
    for (const { bytes } of calls.trace) {
      expect(Buffer.from(bytes, 'hex').readBigUInt64LE(0)).toBe(0x1234567890n);
      expect(bytes.slice(32)).toBe(rest);
    }
    file.close();
  });

  it('recognises the request by its 32 bits, signed or unsigned', async () => {
    for (const numbers of [DRM_IOCTLS, HABANALABS_IOCTLS]) {
      const clock = new ManualClock();
      const calls = driver(clock, 100, BUSY);
      const file = fileOver(calls, numbers, clock);
      using block = allocateScratch(56);
      IN.encode({ seq: 7n, timeout_us: 150_000n }, block.view);
      expect(numbers.WAIT_CS | 0).toBeLessThan(0);
      expect(await file.ioctlAsync(numbers.WAIT_CS | 0, block)).toBe(0);
      expect(timeoutsOf(calls)).toEqual([SLICE_US_MAX, 50_000]);
      block.words.fill(0);
      file.ioctl(numbers.WAIT_CS | 0, block);
      expect(calls.trace.map(({ request }) => request)).toEqual(new Array(3).fill(numbers.WAIT_CS));
      file.close();
    }
  });

  it('ends with the first result that is not "busy"', async () => {
    const outcomes = [
      [HL_WAIT_CS_STATUS.COMPLETED, 0],
      [HL_WAIT_CS_STATUS.TIMEDOUT, -Errno.ETIMEDOUT],
      [HL_WAIT_CS_STATUS.ABORTED, -Errno.EIO],
      [BUSY, -Errno.EBUSY],
    ] as const;
    for (const [status, result] of outcomes) {
      const clock = new ManualClock();
      const calls = driver(clock, 2, status, result);
      const file = fileOver(calls, DRM_IOCTLS, clock);
      using block = allocateScratch(56);
      IN.encode({ seq: 1n, timeout_us: 2n ** 64n - 1n }, block.view);
      expect(await file.ioctlAsync(DRM_IOCTLS.WAIT_CS, block)).toBe(result);
      expect(block.words[0]).toBe(status);
      expect(calls.trace).toHaveLength(3);
      file.close();
    }
  });

  it('polls once for a time-out of 0', async () => {
    const calls = driver(new ManualClock(), 1, BUSY);
    const file = fileOver(calls);
    using block = allocateScratch(56);
    IN.encode({ seq: 1n }, block.view);
    expect(await file.ioctlAsync(DRM_IOCTLS.WAIT_CS, block)).toBe(0);
    expect(timeoutsOf(calls)).toEqual([0]);
    file.close();
  });

  it('slices the time-out of a wait for an interrupt, and leaves a registration alone', async () => {
    const clock = new ManualClock();
    const calls = scriptedCalls((_request, block, index) => {
      block.fill(0);
      block[0] = index < 1 ? BUSY : 0;
      return 0;
    });
    const file = fileOver(calls, DRM_IOCTLS, clock);
    using block = allocateScratch(56);
    const input = { target: 2n ** 60n, interrupt_timeout_us: 10_000_000n };
    IN.encode({ ...input, flags: HL_WAIT_CS_FLAGS.INTERRUPT }, block.view);
    expect(await file.ioctlAsync(DRM_IOCTLS.WAIT_CS, block)).toBe(0);
    expect(timeoutsOf(calls, IN.offsets.interrupt_timeout_us)).toEqual([SLICE_US_MAX, SLICE_US_MAX]);
    expect(timeoutsOf(calls, IN.offsets.target)).toEqual([2 ** 60, 2 ** 60]);

    calls.trace.length = 0;
    const flags = HL_WAIT_CS_FLAGS.INTERRUPT | HL_WAIT_CS_FLAGS.REGISTER_INTERRUPT;
    IN.encode({ ...input, flags }, block.view);
    expect(await file.ioctlAsync(DRM_IOCTLS.WAIT_CS, block)).toBe(0);
    expect(timeoutsOf(calls, IN.offsets.interrupt_timeout_us)).toEqual([10_000_000]);
    file.close();
  });

  it('keeps the descriptor until a call in flight returns, then closes it and returns EBADF', async () => {
    const before = openFileDescriptors();
    let release: (result: number) => void = () => {};
    const calls = scriptedCalls(() => 0, {
      ioctlAsync: () =>
        new Promise((resolve) => {
          release = resolve;
        }),
    });
    const file = fileOver(calls);
    using block = allocateScratch(56);
    IN.encode({ seq: 1n, timeout_us: 10_000_000n }, block.view);
    const pending = file.ioctlAsync(DRM_IOCTLS.WAIT_CS, block);
    expect(file.released).toBeUndefined();
    file.close();
    file.close();
    expect(openFileDescriptors()).toBe(before + 1);
    const atRelease = file.released!.then(() => openFileDescriptors());
    block.words.fill(0);
    block.words[0] = BUSY;
    release(0);
    expect(await pending).toBe(-Errno.EBADF);
    expect(openFileDescriptors()).toBe(before);
    expect(await atRelease).toBe(before);
    expect(file.released).toBeUndefined();
  });

  it('is released by its close if nothing is in flight', () => {
    const before = openFileDescriptors();
    const file = fileOver(scriptedCalls(() => 0));
    file.close();
    expect([file.released, openFileDescriptors()]).toEqual([undefined, before]);
  });
});

describe('mmap', () => {
  it('maps whole pages at an unsigned offset, and the mapping outlives the file', () => {
    const before = mappedMemoryStatistics().liveMappings;
    const file = fileOver(linuxSystemCalls);
    const fd = memfdCreate('contents');
    ftruncate(fd, 8192);
    const offsets: bigint[] = [];
    const calls = {
      ...linuxSystemCalls,
      mapFile: (_fd: number, byteLength: number, offset: bigint) => {
        offsets.push(offset);
        return linuxSystemCalls.mapFile(fd, byteLength, 0n);
      },
    };
    const mapped = fileOver(calls);
    const mapping = mapped.mmap(77, 0x8000000000001000n);
    expect([mapping.byteLength, offsets[0]]).toEqual([4096, 0x8000000000001000n]);
    mapped.close();
    new Uint8Array(mapping.buffer)[0] = 9;
    expect(new Uint8Array(mapping.buffer)[0]).toBe(9);
    mapping.close();
    close(fd);
    file.close();
    expect(mappedMemoryStatistics().liveMappings).toBe(before);
  });

  it('passes on the errors of the kernel', () => {
    const file = fileOver(linuxSystemCalls);
    // The cookie of a command buffer, misaligned: EINVAL of mmap(2).
    expect(() => file.mmap(4096, 0x1000000000000001n)).toThrow(expect.objectContaining({ errno: Errno.EINVAL }));
    for (const byteLength of [0, -1, 1.5, Number.NaN]) {
      expect(() => file.mmap(byteLength, 0n)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
    }
    expect(() => file.mmap(4096, -1n)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
    file.close();
    expect(() => file.mmap(4096, 0n)).toThrow(expect.objectContaining({ errno: Errno.EBADF }));
    expect(() => file.mmap(4096, 0n)).toThrow(SyscallError);
  });
});

describe('mapped registers', () => {
  it('are words of the device memory, until they are unmapped', () => {
    const fd = memfdCreate('card');
    ftruncate(fd, 4096);
    const init = { calls: linuxSystemCalls, clock: new ManualClock(), path: '/dev/accel/accel0', numbers: DRM_IOCTLS };
    const file = new KernelFile({ ...init, fd, onClose: () => {} });
    const registers = file.mapRegisters(4096, 0n);
    const memory = file.mmap(4096, 0n);
    const words = new Int32Array(memory.buffer);
    registers.write(0x1f8, -8);
    words[1] = 7;
    expect([registers.byteLength, words[0x1f8 / 4], registers.read(0x1f8), registers.read(4)]).toEqual([
      4096, -8, -8, 7,
    ]);
    registers.close();
    registers.write(4, 9);
    expect([registers.read(4), words[1]]).toEqual([0, 7]);
    registers.close();
    memory.close();
    file.close();
    expect(() => file.mapRegisters(4096, 0n)).toThrow(/EBADF/);
  });
});

/** Memory over scripted calls: copies that stop and go on, probes of pages, older kernels, and what is left when a call fails. */

import { statSync } from 'node:fs';
import { describe, expect, it, vi } from 'vitest';
import { collectGarbage } from '../../../test/fixtures/collect-garbage.ts';
import { protectPage } from '../../../test/fixtures/driver/protect-page.ts';
import { failure, useScript } from '../../../test/fixtures/processes/scripted-calls.ts';
import { script } from '../../../test/fixtures/processes/scripted-libc.ts';
import { Errno } from '../base/errno.ts';
import { mmap, munmap } from '../base/libc.ts';
import { MapFlag, mapAnonymous, PAGE_SIZE, PROT_READ_WRITE, viewAt } from '../base/mapped-memory.ts';
import { close, isCloexec } from '../file/file.ts';
import { attachSegment, ForeignMemory } from './foreign-memory.ts';
import { ftruncate, getSeals, memfdCreate, punchHole, textWrittenBy } from './memfd.ts';
import {
  copyFromProcess,
  copyToProcess,
  isProcessMemoryReadable,
  isReadable,
  OWN_ADDRESS_SPACE,
  openAddressSpace,
  populateWritable,
  readAddressSpace,
  writeAddressSpace,
} from './memory.ts';
import { ProcessMaps } from './process-maps.ts';
import { mapLarge, mapShareable, mapSharedWindow, unmapLarge } from './shared-window.ts';

vi.mock('../base/libc.ts', async (original) => {
  const { scriptedLibc } = await import('../../../test/fixtures/processes/scripted-libc.ts');
  return scriptedLibc(await original());
});

useScript();

/** The vectors of a call: [base, length] of each. */
function vectors(address: number, count: number): number[][] {
  const words = [...new BigUint64Array(viewAt(address, 16 * count))].map(Number);
  return Array.from({ length: count }, (_, i) => [words[2 * i]!, words[2 * i + 1]!]);
}

describe.each([
  ['processVmReadv', copyFromProcess],
  ['processVmWritev', copyToProcess],
] as const)('a copy by %s', (name, copy) => {
  const [remote, local] = [2 ** 40 + 8, 2 ** 41 + 16];

  it('continues with the rest after partial calls and signals', () => {
    const seen: unknown[] = [];
    const note =
      (result: number) =>
      (...args: number[]): number => {
        seen.push([args[0], args[2], args[4], ...vectors(args[1]!, 1), ...vectors(args[3]!, 1)]);
        return result;
      };
    script(name, note(3), note(-Errno.EINTR), note(2 ** 33), note(5));
    expect(copy(41, remote, local, 2 ** 33 + 8)).toBe(2 ** 33 + 8);
    expect(seen).toEqual(
      [0, 3, 3, 2 ** 33 + 3].map((done) => [
        41,
        1,
        1,
        [local + done, 2 ** 33 + 8 - done],
        [remote + done, 2 ** 33 + 8 - done],
      ]),
    );
  });

  it('that stops has the bytes so far, or the errno if there are none', () => {
    script(name, 3, -Errno.EFAULT);
    expect(copy(41, remote, local, 10)).toBe(3);
    script(name, -Errno.EPERM);
    expect(copy(41, remote, local, 10)).toBe(-Errno.EPERM);
    script(name, 0);
    expect(copy(41, remote, local, 10)).toBe(0);
    script(name, 4, 0);
    expect(copy(41, remote, local, 10)).toBe(4);
  });
});

describe('an address space', () => {
  it('is close-on-exec, and is read and written by its descriptor', () => {
    using memory = mapAnonymous(2 * PAGE_SIZE);
    memory.u8.set([1, 2, 3], 100);
    const space = openAddressSpace(process.pid);
    expect(isCloexec(space)).toBe(true);
    expect(readAddressSpace(space, memory.address + 100, memory.address + PAGE_SIZE, 3)).toBe(3);
    expect([...memory.u8.subarray(PAGE_SIZE, PAGE_SIZE + 4)]).toEqual([1, 2, 3, 0]);
    const places: unknown[] = [];
    const note =
      (result: number) =>
      (_fd: number, local: number, byteLength: number, at: number): number => {
        places.push([local, byteLength, at]);
        return result;
      };
    script('preadCall', note(4), note(-Errno.EINTR), note(5), note(0));
    expect(readAddressSpace(space, 1000, 2000, 20)).toBe(9);
    script('pwriteCall', note(20));
    expect(writeAddressSpace(space, 1000, 2000, 20)).toBe(20);
    expect(places).toEqual([
      [2000, 20, 1000],
      [2004, 16, 1004],
      [2004, 16, 1004],
      [2009, 11, 1009],
      [2000, 20, 1000],
    ]);
    close(space);
  });

  it('that is the own has no bytes where nothing is mapped', () => {
    using memory = mapAnonymous(PAGE_SIZE);
    expect(readAddressSpace(OWN_ADDRESS_SPACE, PAGE_SIZE, memory.address, 8)).toBe(0);
    expect(writeAddressSpace(OWN_ADDRESS_SPACE, PAGE_SIZE, memory.address, 8)).toBe(0);
  });
});

describe('a probe', () => {
  it('reads one byte of each page of a range, from its first byte', () => {
    using memory = mapAnonymous(300 * PAGE_SIZE);
    const read: number[][] = [];
    const note = (...args: number[]): number => {
      expect(vectors(args[1]!, 1)[0]![1]).toBe(args[4]);
      read.push(...vectors(args[3]!, args[4]!));
      return args[4]!;
    };
    script('processVmReadv', -Errno.EINTR, note, note);
    expect(isReadable(memory.address + 5, 299 * PAGE_SIZE)).toBe(true);
    expect(read).toEqual(
      Array.from({ length: 300 }, (_, page) => [memory.address + (page === 0 ? 5 : page * PAGE_SIZE), 1]),
    );
    script('processVmReadv', (...args) => args[4]! - 1);
    expect(isReadable(memory.address, PAGE_SIZE)).toBe(false);
  });

  it.each([
    [0x10_0005, 1, [0x10_0005]],
    [0x10_0000, PAGE_SIZE, [0x10_0000]],
    [0x10_0005, PAGE_SIZE, [0x10_0005, 0x10_1000]],
    [0x10_0000, 2 * PAGE_SIZE, [0x10_0000, 0x10_1000]],
  ])('of another process at %s of %s bytes reads its pages', (address, byteLength, expected) => {
    const read: unknown[] = [];
    script('processVmReadv', (...args) => {
      read.push(args[0], vectors(args[1]!, 1)[0]![1], ...vectors(args[3]!, args[4]!).map(([at]) => at));
      return args[4]!;
    });
    expect(isProcessMemoryReadable(41, address, byteLength)).toBe(true);
    expect(read).toEqual([41, expected.length, ...expected]);
  });

  it('of many pages of another process reads 256 of them, the first and the last among them', () => {
    const read: number[] = [];
    script('processVmReadv', (...args) => {
      read.push(...vectors(args[3]!, args[4]!).map(([at]) => at! / PAGE_SIZE));
      return args[4]!;
    });
    expect(isProcessMemoryReadable(41, 0, 1000 * PAGE_SIZE)).toBe(true);
    expect([read.length, new Set(read).size, read[0], read.at(-1)]).toEqual([256, 256, 0, 999]);
    script('processVmReadv', 255);
    expect(isProcessMemoryReadable(41, 0, 1000 * PAGE_SIZE)).toBe(false);
    expect(isProcessMemoryReadable(41, PAGE_SIZE, 0)).toBe(false);
  });

  it('for writing works on older kernels, which do not know the advice', () => {
    using memory = mapAnonymous(2 * PAGE_SIZE);
    protectPage(memory.address + PAGE_SIZE, 'read');
    script('madvise', -Errno.EINVAL, -Errno.EINVAL, -Errno.EINTR, -Errno.EFAULT);
    expect(populateWritable(memory.address, PAGE_SIZE)).toBe(true);
    expect(populateWritable(memory.address, 2 * PAGE_SIZE)).toBe(false);
    expect(populateWritable(memory.address, PAGE_SIZE)).toBe(false);
  });
});

describe('the mappings of a process', () => {
  it('are read from the list before Linux 6.11', () => {
    using memory = mapAnonymous(3 * PAGE_SIZE);
    protectPage(memory.address + PAGE_SIZE, 'read');
    using maps = new ProcessMaps(process.pid);
    const isWritable = (first: number, count: number): boolean => {
      script('ioctlCall', -Errno.ENOTTY);
      return maps.isWritable(memory.address + first * PAGE_SIZE, count * PAGE_SIZE);
    };
    script('ioctlCall', -Errno.ENOTTY);
    expect([isWritable(0, 1), isWritable(1, 1), isWritable(2, 1), isWritable(0, 2)]).toEqual([
      true,
      false,
      true,
      false,
    ]);
    script('ioctlCall', -Errno.ENOTTY);
    const [read] = maps.ofFile(statSync(process.execPath).ino);
    expect(read).toMatchObject({ writable: false, offset: 0n });
    expect(maps.ofFile(read!.ino)).toContainEqual(read);
  });

  it('are an error if the kernel does not tell them', () => {
    using maps = new ProcessMaps(process.pid);
    script('ioctlCall', -Errno.EPERM, -Errno.EPERM);
    expect(() => maps.exists).toThrow('EPERM');
    script('openCall', -Errno.EMFILE);
    using others = new ProcessMaps(process.pid);
    expect(() => others.exists).toThrow('EMFILE');
  });
});

describe('a file in memory', () => {
  it('is changed after signals', () => {
    const fd = memfdCreate('calls');
    script('ftruncateCall', -Errno.EINTR, -Errno.EINTR);
    ftruncate(fd, 3 * PAGE_SIZE);
    const holes: unknown[] = [];
    script('fallocate', -Errno.EINTR, (...args) => holes.push(args) - 1, -Errno.EPERM);
    punchHole(fd, PAGE_SIZE, 2 * PAGE_SIZE);
    expect(holes).toEqual([[fd, 3, PAGE_SIZE, 2 * PAGE_SIZE]]);
    expect(() => punchHole(fd, 0, 1)).toThrow(failure(Errno.EPERM));
    script('fcntlCall', -Errno.EINVAL);
    expect(() => getSeals(fd)).toThrow(failure(Errno.EINVAL));
    close(fd);
  });

  it('that cannot be shared leaves no descriptor', () => {
    for (const name of ['ftruncateCall', 'fcntlCall', 'mmap'] as const) {
      script(name, -Errno.ENOMEM);
      expect(() => mapShareable(PAGE_SIZE)).toThrow(failure(Errno.ENOMEM));
    }
    script('memfdCreateCall', -Errno.EMFILE);
    expect(() => mapShareable(PAGE_SIZE)).toThrow(failure(Errno.EMFILE));
  });

  it('has mappings of whole pages, up to their limits', () => {
    const fd = memfdCreate('calls');
    const invalid = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });
    for (const byteLength of [0, PAGE_SIZE + 1, 1.5, 2 ** 32 + PAGE_SIZE]) {
      expect(() => mapSharedWindow(fd, byteLength, 0)).toThrow(invalid);
    }
    for (const byteLength of [-PAGE_SIZE, 2 * PAGE_SIZE - 1, 2 ** 46 + PAGE_SIZE]) {
      expect(() => mapLarge(fd, byteLength)).toThrow(invalid);
    }
    script('mmap', -Errno.ENODEV);
    expect(() => mapLarge(fd, PAGE_SIZE)).toThrow(failure(Errno.ENODEV));
    const address = mapLarge(fd, PAGE_SIZE);
    script('munmap', -Errno.EINVAL);
    expect(() => unmapLarge(address, PAGE_SIZE)).toThrow(failure(Errno.EINVAL));
    unmapLarge(address, PAGE_SIZE);
    close(fd);
  });

  it('that is a stream is closed and freed, also if its writer fails', () => {
    const calls: string[] = [];
    const note = (name: string) => (): number => calls.push(name) * 0;
    script('openMemstream', 4096, 4096);
    script('fclose', note('fclose'), note('fclose'));
    script('free', note('free'), note('free'));
    expect(textWrittenBy(() => {})).toBe('');
    const fail = (): never => {
      throw new TypeError('of the writer');
    };
    expect(() => textWrittenBy(fail)).toThrow('of the writer');
    expect(calls).toEqual(['fclose', 'free', 'fclose', 'free']);
  });
});

describe('memory of a library', () => {
  it('is returned once, and then reads zeros where nothing else was mapped meanwhile', () => {
    using memory = mapAnonymous(PAGE_SIZE);
    let returned = 0;
    const foreign = new ForeignMemory(memory.address, PAGE_SIZE, () => {
      returned += 1;
    });
    const mapped: unknown[] = [];
    script('mmap', (...args) => {
      mapped.push(args);
      return -Errno.EEXIST;
    });
    foreign.close();
    foreign.close();
    expect(returned).toBe(1);
    expect(mapped).toEqual([[memory.address, PAGE_SIZE, 3, 0x10_4022, -1, 0]]);
  });

  it('has zero pages as long as its view, which are unmapped with it', async () => {
    // Far from the memory of the process, so that nothing else is mapped there later.
    const address = mmap(2 ** 40, PAGE_SIZE, PROT_READ_WRITE, MapFlag.PRIVATE | MapFlag.ANONYMOUS, -1, 0);
    // A function, after whose end nothing refers to the view.
    const closeViewed = (): void => {
      const foreign = new ForeignMemory(address, PAGE_SIZE, () => munmap(address, PAGE_SIZE));
      foreign.u8[9] = 5;
      foreign.close();
      expect(foreign.u8[9]).toBe(0);
    };
    closeViewed();
    expect(isReadable(address, PAGE_SIZE)).toBe(true);
    for (let turn = 0; turn < 100 && isReadable(address, PAGE_SIZE); turn++) {
      collectGarbage();
      await new Promise(setImmediate);
    }
    expect(isReadable(address, PAGE_SIZE)).toBe(false);
  });

  it.each([PAGE_SIZE + 8, 0, -PAGE_SIZE, 1.5])('does not begin at %s', (address) => {
    expect(() => new ForeignMemory(address, PAGE_SIZE, () => {})).toThrow(/page/);
  });

  it('that is a segment may not exist, or not be for this user', () => {
    script('shmat', -Errno.EINVAL, -Errno.EIDRM, 0x5000, -Errno.EACCES);
    expect([1, 2, 3].map(attachSegment)).toEqual([undefined, undefined, 0x5000]);
    expect(() => attachSegment(4)).toThrow(failure(Errno.EACCES));
  });
});

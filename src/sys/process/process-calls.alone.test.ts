/** Processes over /proc and scripted calls: what counts as alive, identities, programs, locks, and supervisors. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { describe, expect, it, vi } from 'vitest';
import { withoutDescriptors } from '../../../test/fixtures/processes/no-descriptors.ts';
import { failure, useScript } from '../../../test/fixtures/processes/scripted-calls.ts';
import { script } from '../../../test/fixtures/processes/scripted-libc.ts';
import { Errno } from '../base/errno.ts';
import { viewAt } from '../base/mapped-memory.ts';
import { ipcNamespace, networkNamespace, pathIdentity, pidNamespace } from './namespace.ts';
import {
  clockMonotonicRawNs,
  execute,
  isProcessAlive,
  isProcessStopped,
  isProcessTraced,
  pidfdGetfd,
  processCommand,
  processExists,
  processOfThread,
  processStartTime,
  schedGetAffinity,
  schedSetAffinity,
  withEnvironmentLock,
} from './process.ts';
import { hasEnded, isOwn, ownIdentity, packIdentity, unpackIdentity } from './process-identity.ts';
import { installSeccompFilter, SeccompListener } from './seccomp.ts';

vi.mock('../base/libc.ts', async (original) => {
  const { scriptedLibc } = await import('../../../test/fixtures/processes/scripted-libc.ts');
  return scriptedLibc(await original());
});

useScript();

describe('a process', () => {
  it('exists if it belongs to another user', () => {
    script('kill', -Errno.EPERM, -Errno.ESRCH, 0);
    expect([1, 1, 1].map(processExists)).toEqual([true, false, true]);
  });

  it('has its command line, and its start time whatever its name', () => {
    const words = readFileSync('/proc/self/cmdline', 'utf8').split('\0').filter(Boolean);
    expect(processCommand(process.pid, 100_000)).toBe(words.join(' '));
    const text = readFileSync('/proc/self/stat', 'latin1');
    const start = Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[19]);
    expect(start).toBeGreaterThan(0);
    const { title } = process;
    process.title = 'a) 1 (b';
    try {
      expect([processStartTime(process.pid), isProcessAlive(process.pid, start)]).toEqual([start, true]);
    } finally {
      process.title = title;
    }
  });

  it('that has ended and was not waited for exists, and does not run', async () => {
    const child = spawn('/bin/true', { stdio: 'ignore' });
    // Node.js waits for it when the event loop runs.
    let runs = true;
    for (let turn = 0; turn < 100_000 && runs; turn++) runs = isProcessAlive(child.pid!);
    expect([runs, processExists(child.pid!), processCommand(child.pid!, 100)]).toEqual([false, true, undefined]);
    await once(child, 'exit');
  });

  it('that is stopped is not one that is traced', async () => {
    const child = spawn('/bin/sleep', ['100'], { stdio: 'ignore' });
    child.kill('SIGSTOP');
    let stopped = false;
    for (let turn = 0; turn < 100_000 && !stopped; turn++) stopped = isProcessStopped(child.pid!);
    expect([stopped, isProcessTraced(child.pid!), isProcessStopped(process.pid)]).toEqual([true, false, false]);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(isProcessStopped(child.pid!)).toBe(false);
  });

  it('counts as alive where that cannot be read', async () => {
    const states = await withoutDescriptors(() => {
      expect(() => processStartTime(process.pid)).toThrow(failure(Errno.EMFILE));
      return [isProcessAlive(process.pid), isProcessStopped(process.pid)];
    });
    expect(states).toEqual([true, false]);
  });

  it('is that of its threads; a thread that has ended has none', () => {
    const tids = readdirSync('/proc/self/task').map(Number);
    expect(tids.length).toBeGreaterThan(1);
    expect(tids.map(processOfThread)).toEqual(tids.map(() => process.pid));
    expect(processOfThread(4_194_303)).toBeUndefined();
  });
});

it('the clock is the raw one, in nanoseconds', () => {
  const clocks: unknown[] = [];
  script('clockGettime', (clock, address) => {
    clocks.push(clock);
    new BigUint64Array(viewAt(address!, 16)).set([5n, 7n]);
    return 0;
  });
  expect(clockMonotonicRawNs()).toBe(5_000_000_007);
  expect(clocks).toEqual([4]);
});

it('CPUs are one bit each, and masks are freed', () => {
  const masks: Uint8Array[] = [];
  const note = (_tid: number, byteLength: number, address: number): number => {
    masks.push(new Uint8Array(viewAt(address, byteLength)).slice());
    return 0;
  };
  script('schedSetaffinityCall', note, -Errno.EPERM);
  schedSetAffinity(0, [0, 17, 31, 32, 1023]);
  const bits = [...masks[0]!].flatMap((byte, at) =>
    [0, 1, 2, 3, 4, 5, 6, 7].flatMap((i) => (byte & (1 << i) ? [8 * at + i] : [])),
  );
  expect(bits).toEqual([0, 17, 31, 32, 1023]);
  expect(() => schedSetAffinity(0, [1])).toThrow(failure(Errno.EPERM));
  expect(() => schedSetAffinity(0, [1024])).toThrow(/0 to 1023/);
  script('schedGetaffinityCall', (_tid, byteLength, address) => {
    new Uint8Array(viewAt(address!, byteLength!)).set(masks[0]!);
    return byteLength!;
  });
  expect(schedGetAffinity(0)).toEqual([0, 17, 31, 32, 1023]);
  script('schedGetaffinityCall', -Errno.ESRCH);
  expect(() => schedGetAffinity(1)).toThrow(failure(Errno.ESRCH));
});

it('a program gets the standard descriptors, and SIGPIPE with its usual meaning', () => {
  const seen: unknown[] = [];
  const note =
    (name: string) =>
    (...args: unknown[]): number =>
      seen.push([name, ...args]) * 0;
  // The flags are O_RDWR and O_NONBLOCK.
  const flags = (...args: unknown[]): number => seen.push(['fcntl', ...args]) * 0 + 0o4002;
  const each = [note('fcntl'), flags, note('fcntl')];
  script('fcntlCall', ...each, ...each, ...each);
  script('signalCall', note('signal'));
  script('execvp', (_file, address) => {
    const table = [...new BigUint64Array(viewAt(address!, 32))].map(Number);
    const text = (at: number) => {
      const bytes = Buffer.from(viewAt(at, 16));
      return bytes.toString('latin1', 0, bytes.indexOf(0));
    };
    seen.push([...table.slice(0, 3).map(text), table[3]]);
    return -Errno.ENOENT;
  });
  expect(() => execute('prog', ['one', 'two'])).toThrow(failure(Errno.ENOENT));
  expect(seen).toEqual([
    ...[0, 1, 2].flatMap((fd) => [
      ['fcntl', fd, 2, 0],
      ['fcntl', fd, 3, 0],
      ['fcntl', fd, 4, 0o2],
    ]),
    ['signal', 13, 0],
    ['prog', 'one', 'two', 0],
  ]);
});

it('the lock of the environment is taken once by calls in each other, and again later', () => {
  let taken = 0;
  const note = (): number => {
    taken += 1;
    return 0;
  };
  // The inner call leaves the second lock to the next outer one.
  script('flock', -Errno.EINTR, note, note);
  expect(withEnvironmentLock(() => withEnvironmentLock(() => taken))).toBe(1);
  expect(() => withEnvironmentLock(() => expect.unreachable())).toThrow();
  script('flock', note);
  expect(withEnvironmentLock(() => taken)).toBe(3);
  script('flock', -Errno.ENOMEM);
  expect(() => withEnvironmentLock(() => 0)).toThrow(failure(Errno.ENOMEM));
});

it('a descriptor of another process that cannot be had is an error', () => {
  script('pidfdGetfdCall', -Errno.EPERM);
  expect(() => pidfdGetfd(3, 4)).toThrow(failure(Errno.EPERM));
});

describe('the identity of a process', () => {
  const own = ownIdentity();

  it('is its namespace, pid and start time', () => {
    expect(own).toEqual({ pidNamespace: pidNamespace(), pid: process.pid, startTime: processStartTime(process.pid) });
    const others = [
      { ...own, pidNamespace: own.pidNamespace + 1 },
      { ...own, pid: own.pid + 1 },
      { ...own, startTime: own.startTime + 1 },
    ];
    expect([own, ...others].map(isOwn)).toEqual([true, false, false, false]);
  });

  it('has ended if its pid is free or of another process, in this namespace', () => {
    const ended = { ...own, startTime: own.startTime + 1 };
    const free = { ...own, pid: 4_194_303 };
    expect([own, ended, free].map(hasEnded)).toEqual([false, true, true]);
    expect([ended, free].map((each) => hasEnded({ ...each, pidNamespace: 1 }))).toEqual([false, false]);
  });

  it('is packed at its place in a view', () => {
    const bytes = new Uint8Array(64).fill(9);
    const identity = { pidNamespace: 0xf000_0001, pid: 0x0034_5678, startTime: 2 ** 40 + 3 };
    packIdentity(identity, bytes.subarray(8), 4);
    expect([...bytes.subarray(10, 13), ...bytes.subarray(27, 30)]).toEqual([9, 9, 1, 0, 9, 9]);
    expect(unpackIdentity(bytes.subarray(12), 0)).toEqual(identity);
  });
});

it('namespaces and paths have the numbers of the kernel', () => {
  const inode = (name: string): number => Number(/\d+/.exec(readlinkSync(`/proc/self/ns/${name}`))![0]);
  expect([ipcNamespace(), networkNamespace(), pidNamespace()]).toEqual([inode('ipc'), inode('net'), inode('pid')]);
  const { dev, ino } = statSync('/proc/self/stat', { bigint: true });
  expect(pathIdentity('/proc/self/stat')).toBe(BigInt.asUintN(64, (dev << 32n) ^ ino));
  expect(pathIdentity('/no/such/path')).toBeUndefined();
});

describe('a supervisor of system calls', () => {
  it('installs a filter whose signals wait, or an older one', () => {
    const seen: unknown[] = [];
    const note =
      (result: number) =>
      (number: number, mode: number, flags: number, address: number): number => {
        const head = new DataView(viewAt(address, 32));
        const at = Number(head.getBigUint64(8, true));
        const code = [...new Uint8Array(viewAt(at, 16))];
        seen.push([number, mode, flags, head.getUint16(0, true), code]);
        return result;
      };
    const program = [
      { code: 0x1234, jumpTrue: 5, jumpFalse: 6, value: 0x0708_090a },
      { code: 1, jumpTrue: 2, jumpFalse: 3, value: 4 },
    ];
    const code = [0x34, 0x12, 5, 6, 10, 9, 8, 7, 1, 0, 2, 3, 4, 0, 0, 0];
    script('seccompCall', note(77));
    expect(installSeccompFilter(program)).toBe(77);
    script('seccompCall', note(-Errno.EINVAL), note(78));
    expect(installSeccompFilter(program)).toBe(78);
    expect(seen).toEqual([0x28, 0x28, 8].map((flags) => [317, 1, flags, 2, code]));
    script('seccompCall', -Errno.EACCES);
    expect(() => installSeccompFilter(program)).toThrow(failure(Errno.EACCES));
    script('seccompCall', -Errno.EINVAL, -Errno.EINVAL);
    expect(() => installSeccompFilter(program)).toThrow(failure(Errno.EINVAL));
  });

  it('receives calls into zeroed memory, and answers the one that it received', () => {
    const listener = new SeccompListener(55);
    const ioctl = (run: (view: DataView, request: number, fd: number) => number) => {
      script('ioctlCall', (fd, request, address) => run(new DataView(viewAt(address!, 80)), request!, fd!));
    };
    const receive = (id: bigint) =>
      ioctl((view, request, fd) => {
        expect([fd, request]).toEqual([55, 0xc050_2100]);
        expect([...new Uint8Array(view.buffer)].every((byte) => byte === 0)).toBe(true);
        view.setBigUint64(0, id, true);
        view.setUint32(8, 41, true);
        view.setInt32(16, 257, true);
        for (let i = 0; i < 6; i++) view.setBigUint64(32 + 8 * i, BigInt(i) + (1n << 40n), true);
        return 0;
      });
    receive(1n << 35n);
    expect(listener.receive()).toBe(true);
    receive(91n);
    expect(listener.receive()).toBe(true);
    expect([listener.tid, listener.number, listener.argument(0), listener.argument(5)]).toEqual([
      41,
      257,
      2 ** 40,
      2 ** 40 + 5,
    ]);
    const answers: unknown[] = [];
    const answer = () =>
      ioctl((view, request) => {
        const fields = [
          view.getBigUint64(0, true),
          view.getBigInt64(8, true),
          view.getInt32(16, true),
          view.getUint32(20, true),
        ];
        answers.push([request, ...fields]);
        return 0;
      });
    answer();
    listener.answer(12, 0);
    answer();
    listener.answer(0, Errno.EPERM);
    answer();
    listener.proceed();
    expect(answers).toEqual([
      [0xc018_2101, 91n, 12n, 0, 0],
      [0xc018_2101, 91n, 0n, -Errno.EPERM, 0],
      [0xc018_2101, 91n, 0n, 0, 1],
    ]);
    const given: unknown[] = [];
    const give = (result: number) =>
      ioctl((view, request) => {
        given.push([request, view.getBigUint64(0, true), ...[8, 12, 16, 20].map((at) => view.getInt32(at, true))]);
        return result;
      });
    give(6);
    expect(listener.addDescriptor(33, true)).toBe(6);
    give(-Errno.ENOENT);
    expect(listener.addDescriptor(34, false)).toBe(-Errno.ENOENT);
    expect(given).toEqual([
      [0x4018_2103, 91n, 0, 33, 0, 0o2000000],
      [0x4018_2103, 91n, 0, 34, 0, 0],
    ]);
    ioctl(() => -Errno.ENOENT);
    expect(listener.receive()).toBe(false);
    listener.free();
  });
});

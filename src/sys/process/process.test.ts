import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it, vi } from 'vitest';
import { builtSpecifier } from '../../../test/fixtures/tools/built.ts';
import { Errno } from '../base/errno.ts';
import { close, PollEvent, pollNow } from '../file/file.ts';
import {
  clockMonotonicRawNs,
  getpid,
  gettid,
  isProcessAlive,
  pidfdOpen,
  processExists,
  processStartTime,
  schedGetAffinity,
  schedSetAffinity,
  schedYield,
  setParentDeathSignal,
} from './process.ts';

const SYS = builtSpecifier(new URL('../index.ts', import.meta.url));

describe('life and death', () => {
  it('follow a child that is killed', async () => {
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000); console.log("up")'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    await once(child.stdout, 'data');
    const pid = child.pid!;
    const start = processStartTime(pid);
    expect(start).toBeGreaterThanOrEqual(processStartTime(process.pid)!);
    expect(processExists(pid)).toBe(true);
    expect(isProcessAlive(pid)).toBe(true);
    expect(isProcessAlive(pid, start)).toBe(true);
    expect(isProcessAlive(pid, start! - 1)).toBe(false);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect([processExists(pid), isProcessAlive(pid), processStartTime(pid)]).toEqual([false, false, undefined]);
  });

  it('end busy children with their parent', async () => {
    const grandchild = `
      import { setParentDeathSignal } from ${SYS};
      setParentDeathSignal();
      console.log(process.pid);
      for (;;);`;
    const parent = `
      import { spawn } from 'node:child_process';
      spawn(process.execPath, ['--input-type=module', '-e', ${JSON.stringify(grandchild)}], { stdio: 'inherit' });`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', parent], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [line] = (await once(child.stdout, 'data')) as [Buffer];
    const pid = Number(line.toString());
    expect(isProcessAlive(pid)).toBe(true);
    child.kill('SIGKILL');
    // The pipe ends when its last writer, the grandchild, has ended.
    child.stdout.resume();
    await once(child.stdout, 'end');
    // Its descriptors are closed a moment before the kernel reports its end.
    await vi.waitFor(() => expect(isProcessAlive(pid)).toBe(false), { timeout: 5000 });
  });

  it('reject an unknown signal', () => {
    expect(() => setParentDeathSignal(9999)).toThrow(expect.objectContaining({ errno: Errno.EINVAL }));
  });
});

describe('identity', () => {
  it('is that of this process', () => {
    expect(getpid()).toBe(process.pid);
    expect(gettid()).toBeGreaterThan(0);
    expect(isProcessAlive(gettid())).toBe(true);
  });
});

describe('pidfdOpen', () => {
  it('is readable once the process has ended', async () => {
    const child = spawn(process.execPath, ['-e', 'process.stdin.resume()']);
    const ended = new Promise((resolve) => child.once('exit', resolve));
    const fd = pidfdOpen(child.pid!);
    expect(pollNow(fd, PollEvent.IN)).toBe(0);
    child.kill('SIGKILL');
    await ended;
    expect(pollNow(fd, PollEvent.IN) & PollEvent.IN).toBe(PollEvent.IN);
    close(fd);
    expect(() => pidfdOpen(2 ** 30)).toThrow(expect.objectContaining({ errno: Errno.ESRCH }));
  });
});

describe('schedSetAffinity', () => {
  it('restricts and restores the calling thread', () => {
    const cpus = schedGetAffinity(0);
    expect(cpus.length).toBeGreaterThan(0);
    schedSetAffinity(0, [cpus.at(-1)!]);
    expect(schedGetAffinity(0)).toEqual([cpus.at(-1)]);
    schedSetAffinity(0, cpus);
    expect(schedGetAffinity(0)).toEqual(cpus);
    schedYield();
  });

  it('reports errors', () => {
    expect(() => schedSetAffinity(0, [])).toThrow(expect.objectContaining({ errno: Errno.EINVAL }));
    expect(() => schedSetAffinity(0, [1024])).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
    expect(() => schedGetAffinity(2 ** 30)).toThrow(expect.objectContaining({ errno: Errno.ESRCH }));
  });
});

describe('clockMonotonicRawNs', () => {
  it('never goes back', () => {
    let last = clockMonotonicRawNs();
    expect(last).toBeGreaterThan(0);
    for (let step = 0; step < 1000; step++) {
      const now = clockMonotonicRawNs();
      expect(now).toBeGreaterThanOrEqual(last);
      last = now;
    }
  });
});

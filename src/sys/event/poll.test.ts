import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { collectGarbage } from '../../../test/fixtures/collect-garbage.ts';
import { builtSpecifier } from '../../../test/fixtures/tools/built.ts';
import { Errno } from '../base/errno.ts';
import { close, OpenFlag, open, openFileDescriptors, pipe2, read, write } from '../file/file.ts';
import { pollReadable } from './poll.ts';

/** Runs a module with the given body in a separate process. */
function run(body: string): { status: number | null; stdout: string; stderr: string } {
  const module = `
    import * as sys from ${builtSpecifier(new URL('../index.ts', import.meta.url))};
    ${body}`;
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', module], {
    encoding: 'utf8',
    timeout: 30_000,
  });
  return { status, stdout, stderr };
}

describe('pollReadable', () => {
  it('calls back when there are bytes to read, and at the end', async () => {
    const before = openFileDescriptors();
    const [reader, writer] = pipe2(OpenFlag.CLOEXEC | OpenFlag.NONBLOCK);
    const results: number[] = [];
    await new Promise<void>((resolve) => {
      const subscription = pollReadable(reader, () => {
        results.push(read(reader, new Uint8Array(16)));
        if (results.length === 1) close(writer);
        else {
          subscription.close();
          resolve();
        }
      });
      write(writer, new Uint8Array(3));
    });
    expect(results).toEqual([3, 0]);
    close(reader);
    expect(openFileDescriptors()).toBe(before);
  });

  it('continues the promises of a callback before the loop sleeps', () => {
    // Only the subscription keeps the process alive: without it, the loop would wait for the timer, which ends the process first.
    const { stdout } = run(`
      const [reader, writer] = sys.pipe2();
      setTimeout(() => { console.log('the loop slept'); process.exit(); }, 5000);
      const subscription = sys.pollReadable(reader, () => {
        sys.read(reader, new Uint8Array(1));
        void Promise.resolve().then(() => { console.log('continued'); process.exit(); });
      });
      setImmediate(() => sys.write(writer, new Uint8Array(1)));
    `);
    expect(stdout).toBe('continued\n');
  });

  it('survives garbage collection and the closing of the original descriptor', async () => {
    const [reader, writer] = pipe2();
    const copy = open(`/proc/self/fd/${reader}`, OpenFlag.RDONLY | OpenFlag.NONBLOCK);
    const woken = new Promise<number>((resolve) => {
      const subscription = pollReadable(copy, () => {
        subscription.close();
        resolve(copy);
      });
    });
    close(copy);
    collectGarbage();
    await new Promise(setImmediate);
    collectGarbage();
    write(writer, new Uint8Array(1));
    expect(await woken).toBe(copy);
    close(reader);
    close(writer);
  });

  it('allows several subscriptions to one descriptor', async () => {
    const [reader, writer] = pipe2();
    const calls = [0, 1].map(
      (number) =>
        new Promise<number>((resolve) => {
          const subscription = pollReadable(reader, () => {
            subscription.close();
            subscription.close();
            subscription.ref();
            subscription.unref();
            resolve(number);
          });
        }),
    );
    write(writer, new Uint8Array(1));
    expect(await Promise.all(calls)).toEqual([0, 1]);
    close(reader);
    close(writer);
  });

  it('rejects descriptors that cannot be polled, and then leaks nothing', () => {
    const before = openFileDescriptors();
    expect(() => pollReadable(9999, () => {})).toThrow(expect.objectContaining({ errno: Errno.EBADF }));
    const file = open(process.execPath, OpenFlag.RDONLY);
    expect(() => pollReadable(file, () => {})).toThrow(
      expect.objectContaining({ errno: Errno.EPERM, syscall: 'epoll_ctl' }),
    );
    close(file);
    expect(openFileDescriptors()).toBe(before);
  });

  it('keeps the process alive, unless it is unreferenced', () => {
    const idle = run(`
      const event = new sys.EventFd();
      event.onReadable(() => {}).unref();
      console.log('idle');`);
    expect(idle).toMatchObject({ status: 0, stdout: 'idle\n' });
    const busy = run(`
      const event = new sys.EventFd();
      const subscription = event.onReadable(() => { event.close(); console.log('woken'); });
      setTimeout(() => event.signal(), 20).unref();`);
    expect(busy).toMatchObject({ status: 0, stdout: 'woken\n' });
  });

  it('turns an exception in the callback into an uncaught one', () => {
    const { status, stderr } = run(`
      const event = new sys.EventFd();
      const subscription = event.onReadable(() => { subscription.close(); throw new TypeError('from the callback'); });
      event.signal();`);
    expect(status).toBe(1);
    expect(stderr).toContain('TypeError: from the callback');
  });
});

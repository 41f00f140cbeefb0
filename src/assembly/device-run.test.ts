/** A process becomes a program on device nodes: the order of its steps, what it closes, and what a failure needs. */

import { describe, expect, it } from 'vitest';
import { DEVICE_FILTER } from '../emulator/index.ts';
import { Errno, SyscallError } from '../sys/index.ts';
import { becomeProgram } from './device-run.ts';

class Executed extends Error {}

/** The steps of a run, in their order. @param changes fail a step, or answer otherwise */
function run(changes: Partial<NonNullable<Parameters<typeof becomeProgram>[3]>> = {}, supervise = (): void => {}) {
  const steps: string[] = [];
  const server = {
    serveDevices: (fuse: number) => steps.push(`serve ${fuse}`),
    supervise: () => {
      steps.push('supervise');
      supervise();
      return { connection: 14, nodes: [] };
    },
    close: () => steps.push('close server'),
  };
  const supervisor = { close: () => steps.push('close supervisor') };
  const system = {
    isInPrivateTree: () => false,
    enterPrivateTree: (serve: (fuse: number, device: string) => void) => {
      steps.push('enter');
      serve(11, '0:12');
      return [{ device: '0:15', type: 16 }];
    },
    installSeccompFilter: (filter: unknown) => {
      expect(filter).toBe(DEVICE_FILTER);
      steps.push('filter');
      return 13;
    },
    sendTree: (to: unknown, tree: unknown, fds: readonly number[]) => {
      expect([to, tree]).toEqual([supervisor, { device: '0:12', nodes: [] }]);
      steps.push(`send tree ${fds.join(' ')}`);
    },
    sendFilter: (to: unknown, filter: unknown) => {
      expect([to, filter]).toEqual([supervisor, { listener: 13, disguised: [{ device: '0:15', type: 16 }] }]);
      steps.push('send filter');
    },
    closeFd: (fd: number) => steps.push(`close ${fd}`),
    execute: (file: string, args: readonly string[]) => {
      steps.push(`execute ${file} ${args.join(' ')}`);
      throw new Executed();
    },
    isInitialUserNamespace: () => true,
    ...changes,
  };
  let error: unknown;
  try {
    becomeProgram({ server, supervisor } as never, 'tool', ['-a', 'b'], system as never);
  } catch (thrown) {
    error = thrown;
  }
  return { steps, error };
}

const failing = (errno: number) => () => {
  throw new SyscallError('mount', errno, 'the tree');
};

describe('a program on device nodes', () => {
  it('runs once its node is served and supervised; the process keeps no descriptor of that', () => {
    const { steps, error } = run();
    expect(error).toBeInstanceOf(Executed);
    expect(steps).toEqual([
      'enter',
      'serve 11',
      'supervise',
      'send tree 14 11',
      'close 14',
      'filter',
      'send filter',
      'close 13',
      'close supervisor',
      'close server',
      'execute tool -a b',
    ]);
  });

  it('is refused inside another one, before anything is changed', () => {
    const { steps, error } = run({ isInPrivateTree: () => true });
    expect(steps).toEqual([]);
    expect(error).toMatchObject({ code: 'ERR_DEVICE_NODES', details: { reason: 'nested' } });
  });

  it.each([
    [Errno.EPERM, true, /requires CAP_SYS_ADMIN/],
    [Errno.EACCES, true, /requires CAP_SYS_ADMIN/],
    [Errno.EINVAL, false, /requires CAP_SYS_ADMIN/],
    [Errno.EINVAL, true, /requires FUSE with passthrough/],
    [Errno.ENODEV, true, /requires FUSE with passthrough/],
  ])(
    'that cannot be mounted for errno %i, in the first user namespace: %s, tells what it needs',
    (errno, isInitial, needs) => {
      const { steps, error } = run({ enterPrivateTree: failing(errno), isInitialUserNamespace: () => isInitial });
      expect(steps).toEqual([]);
      expect(error).toMatchObject({
        code: 'ERR_DEVICE_NODES',
        message: expect.stringMatching(needs) as string,
        details: { errno },
      });
    },
  );

  it('is not run when the filter is refused, nor after another failure, which is thrown as it is', () => {
    const refused = run({ installSeccompFilter: failing(Errno.EBUSY) as never });
    expect(refused.steps).toEqual(['enter', 'serve 11', 'supervise', 'send tree 14 11', 'close 14']);
    expect(refused.error).toMatchObject({ code: 'ERR_DEVICE_NODES', details: { errno: Errno.EBUSY } });
    const gone = new Error('the server has ended');
    const { error } = run({}, () => {
      throw gone;
    });
    expect(error).toBe(gone);
  });
});

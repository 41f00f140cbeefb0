import { chmodSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FakeMachine, type Layout } from '../../../test/fixtures/driver/fake-machine.ts';
import { scriptedCalls, statusAnswer } from '../../../test/fixtures/driver/scripted-calls.ts';
import { Errno, openFileDescriptors, SyscallError, scratchStatistics } from '../../sys/index.ts';
import { DRM_IOCTLS, HABANALABS_IOCTLS } from '../../uapi/index.ts';
import { createLog, LogLevel } from '../../ucs/debug/log.ts';
import { KernelNode } from './kernel-node.ts';
import { linuxSystemCalls } from './system-calls.ts';

const errno = (value: number): unknown => expect.objectContaining({ name: 'SyscallError', errno: value });
const CARD = { minor: 0, busId: '0000:3b:00.0', moduleId: 4, numaNode: 0 };

describe.each<{ layout: Layout; first: 'drm' | 'habanalabs' }>([
  { layout: 'accel-parent', first: 'drm' },
  { layout: 'accel', first: 'drm' },
  { layout: 'legacy', first: 'habanalabs' },
])('KernelNode in the $layout layout', ({ layout, first }) => {
  it.each(['drm', 'habanalabs'] as const)('detects by probing that the driver uses %s', (family) => {
    using machine = new FakeMachine();
    machine.addCard({ ...CARD, layout });
    const expected = family === 'drm' ? DRM_IOCTLS : HABANALABS_IOCTLS;
    for (const refusal of [-Errno.ENOTTY, -Errno.EINVAL]) {
      const calls = scriptedCalls(statusAnswer(family, refusal));
      const node = new KernelNode({ ...machine, calls });
      expect(node.open(0).numbers).toBe(expected);
      expect(calls.trace.map((entry) => entry.request)).toEqual(
        family === first ? [expected.INFO] : [otherOf(family).INFO, expected.INFO],
      );
      expect(node.openControl(0).numbers).toBe(expected);
      node.close();
    }
  });

  it('rejects and reports a node that is not a device', () => {
    using machine = new FakeMachine();
    machine.addCard({ ...CARD, layout });
    const before = [openFileDescriptors(), scratchStatistics().liveBlocks];
    const node = new KernelNode({ ...machine });
    expect(() => node.open(0)).toThrow(errno(Errno.ENOTTY));
    expect(() => node.open(0)).toThrow(
      /(accel0|hl0) is not a habanalabs device: it accepts INFO in neither ioctl family/,
    );
    expect(() => node.openControl(0)).toThrow(/_controlD0 is not a habanalabs device/);
    expect([openFileDescriptors(), scratchStatistics().liveBlocks]).toEqual(before);
  });
});

const otherOf = (family: 'drm' | 'habanalabs'): typeof DRM_IOCTLS =>
  family === 'drm' ? HABANALABS_IOCTLS : DRM_IOCTLS;

describe('opening', () => {
  it.each([Errno.ENODEV, Errno.EBUSY, Errno.EAGAIN, Errno.EPERM, Errno.EACCES, Errno.ENXIO])(
    'passes on errno %i of open, without trying the other path',
    (value) => {
      using machine = new FakeMachine();
      machine.addCard({ ...CARD, layout: 'accel' });
      machine.addCard({ ...CARD, layout: 'legacy' });
      const opened: string[] = [];
      const open = (path: string): number => {
        opened.push(path);
        throw new SyscallError('open', value, path);
      };
      const node = new KernelNode({ ...machine, calls: { ...linuxSystemCalls, open } });
      expect(() => node.open(0)).toThrow(errno(value));
      expect(() => node.openControl(0)).toThrow(errno(value));
      expect(opened).toEqual([join(machine.devRoot, 'accel/accel0'), join(machine.devRoot, 'accel/accel_controlD0')]);
    },
  );

  it('is close-on-exec and read-write', () => {
    using machine = new FakeMachine();
    machine.addCard({ ...CARD, layout: 'accel' });
    const flags: number[] = [];
    const open = (path: string, given: number): number => {
      flags.push(given);
      return linuxSystemCalls.open(path, given);
    };
    const node = new KernelNode({ ...machine, calls: scriptedCalls(statusAnswer('drm'), { open }) });
    node.open(0);
    expect(flags).toEqual([0o2000002]);
    node.close();
  });

  it.each([Errno.ENODEV, Errno.EPERM, Errno.EFAULT])('passes on errno %i of the probe and closes the fd', (value) => {
    using machine = new FakeMachine();
    machine.addCard({ ...CARD, layout: 'accel' });
    const before = openFileDescriptors();
    const node = new KernelNode({ ...machine, calls: scriptedCalls(() => -value) });
    expect(() => node.open(0)).toThrow(errno(value));
    expect(openFileDescriptors()).toBe(before);
  });

  it('rejects a driver that accepts the number without a result', () => {
    using machine = new FakeMachine();
    machine.addCard({ ...CARD, layout: 'accel' });
    const calls = scriptedCalls(() => 0);
    expect(() => new KernelNode({ ...machine, calls }).open(0)).toThrow(errno(Errno.ENOTTY));
    expect(calls.trace).toHaveLength(2);
  });

  it('repeats the probe after signals and transient rejections', () => {
    using machine = new FakeMachine();
    machine.addCard({ ...CARD, layout: 'accel' });
    const answer = statusAnswer('drm');
    const calls = scriptedCalls((request, block, call) => {
      if (call >= 2) return answer(request, block, call);
      block.fill(0);
      return call === 0 ? -Errno.EINTR : -Errno.EAGAIN;
    });
    const node = new KernelNode({ ...machine, calls });
    expect(node.open(0).numbers).toBe(DRM_IOCTLS);
    expect(new Set(calls.trace.map((entry) => entry.bytes)).size).toBe(1);
    node.close();
  });

  it('names every path that it tried if there is no such card', () => {
    using machine = new FakeMachine();
    const node = new KernelNode({ ...machine });
    expect(() => node.open(7)).toThrow(errno(Errno.ENOENT));
    expect(() => node.open(7)).toThrow(/no primary node of accel7: tried .*accel\/accel7, .*hl7$/);
    expect(() => node.openControl(7)).toThrow(/no control node of accel7: tried .*accel_controlD7, .*hl_controlD7$/);
  });

  it.each([-1, 256, 1.5, Number.NaN, '0' as unknown as number])('rejects the minor %j', (minor) => {
    const node = new KernelNode();
    for (const call of [() => node.open(minor), () => node.openControl(minor), () => node.attribute(minor, 'status')]) {
      expect(call).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
    }
  });

  it.skipIf(process.getuid?.() === 0)('reports a node without permission (needs a user other than root)', () => {
    using machine = new FakeMachine();
    machine.addCard({ ...CARD, layout: 'accel' });
    chmodSync(join(machine.devRoot, 'accel/accel0'), 0);
    expect(() => new KernelNode({ ...machine }).open(0)).toThrow(errno(Errno.EACCES));
  });
});

describe('attributes and life', () => {
  it('reads attributes; absent ones are undefined, unreadable ones are also logged', () => {
    using machine = new FakeMachine();
    machine.addCard({ ...CARD, layout: 'accel-parent' });
    machine.write('sys/class/accel/accel0/device/fw_os_ver', '1.22.1-fw\n');
    machine.write('sys/class/accel/accel0/device/cpld_ver/inner', '');
    machine.write('dev/accel/accel9', '');
    const lines: string[] = [];
    const node = new KernelNode({
      ...machine,
      log: createLog('driver', LogLevel.DIAG, (_level, _name, message) => lines.push(message)),
    });
    expect(node.attribute(0, 'status')).toBe('Operational');
    expect(node.attribute(0, 'fw_os_ver')).toBe('1.22.1-fw');
    expect(node.attribute(0, 'eeprom')).toBeUndefined();
    expect(node.attribute(0, 'cpld_ver')).toBeUndefined();
    expect(node.cards()).toHaveLength(1);
    expect(lines).toEqual([
      'cannot read attribute cpld_ver of accel0: is a directory',
      expect.stringMatching(/accel9 is skipped: no pci_addr in sysfs: not a habanalabs card$/),
    ]);
  });

  it('reads the machine at every call', () => {
    using machine = new FakeMachine();
    const node = new KernelNode({ ...machine });
    expect(node.cards()).toEqual([]);
    machine.addCard({ ...CARD, layout: 'accel' });
    expect(node.cards()).toHaveLength(1);
  });

  it('remembers cards that were removed since it was opened, with their minors', () => {
    using machine = new FakeMachine();
    machine.addCard({ ...CARD, layout: 'accel' });
    const node = new KernelNode({ ...machine });
    expect([node.cards().length, node.absentCards()]).toEqual([1, []]);
    rmSync(join(machine.devRoot, 'accel'), { recursive: true });
    expect([node.cards(), node.absentCards()]).toEqual([[], [{ minor: 0, busId: CARD.busId, state: 'removed' }]]);
    machine.addCard({ ...CARD, layout: 'accel' });
    expect(node.absentCards()).toEqual([]);
    node.close();
  });

  it('closes its files when it is closed, and throws afterwards', () => {
    using machine = new FakeMachine();
    machine.addCard({ ...CARD, layout: 'accel' });
    const before = openFileDescriptors();
    const node = new KernelNode({ ...machine, calls: scriptedCalls(statusAnswer('drm')) });
    const files = [node.open(0), node.openControl(0), node.openControl(0)];
    files[1]!.close();
    files[1]!.close();
    expect(openFileDescriptors()).toBe(before + 2);
    node.close();
    node.close();
    expect(openFileDescriptors()).toBe(before);
    for (const call of [
      () => node.cards(),
      () => node.open(0),
      () => node.openControl(0),
      () => node.attribute(0, 'x'),
    ]) {
      expect(call).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
    }
  });
});

describe('this machine', () => {
  const node = new KernelNode();
  it('reports its cards in the form of the port', () => {
    expect(node.kind).toBe('kernel');
    for (const card of node.cards()) expect(card).toMatchObject({ busId: expect.stringMatching(/^[0-9a-f:.]{12,}$/) });
  });

  it.skipIf(node.cards().length > 0)('fails to open a card if it has none (needs a machine without cards)', () => {
    expect(node.cards()).toEqual([]);
    expect(() => node.open(255)).toThrow(errno(Errno.ENOENT));
    expect(node.attribute(255, 'status')).toBeUndefined();
  });

  it.runIf(node.cards().length > 0)('opens the control node of every card (needs a card)', () => {
    for (const { minor } of node.cards()) expect(() => node.openControl(minor).close()).not.toThrow();
  });
});

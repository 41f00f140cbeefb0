/** An RDMA device over a fake context: its limits, the choice of a GID, the order in which it is opened and closed, and its events. */

import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { Errno, EventFd, SyscallError } from '../../../sys/index.ts';
import { AsyncEventType, LinkLayer, PortState } from '../../../verbs/abi.ts';
import type { AsyncEvent, GidEntry, VerbsPort } from '../../../verbs/port.ts';
import { AsyncEvents, IbDevice, type IbPort } from './device.ts';
import { SlotMemory } from './queues.ts';

expectNoLeaks();

const LIMITS = { maxQpWr: 32, maxCqe: 64, maxSge: 2, maxSrqWr: 16 };

function gid(index: number, type: GidEntry['type'], bytes: readonly number[]): GidEntry {
  return { index, type, gid: Uint8Array.from({ length: 16 }, (_, i) => bytes[i] ?? 0) };
}

function open(more: { readonly limits?: object; readonly gids?: readonly GidEntry[]; readonly fails?: boolean } = {}) {
  const closed: string[] = [];
  const context = {
    queryDevice: () => ({ ...LIMITS, ...more.limits }),
    queryPort: () => ({ state: PortState.ACTIVE, linkLayer: LinkLayer.ETHERNET }),
    gids: () => more.gids ?? [gid(0, 'roce_v2', [1])],
    pkeys: () => [0xffff],
    allocPd() {
      if (more.fails === true) throw new SyscallError('ibv_alloc_pd', Errno.ENOMEM, 'hca0');
      return { close: () => closed.push('pd') };
    },
    close: () => closed.push('context'),
  };
  const verbs = { emulated: false, open: () => context } as unknown as VerbsPort;
  return { closed, make: () => new IbDevice(verbs, 'hca0', 0) };
}

describe('a device', () => {
  it('is closed after its protection domain, and if it has none', () => {
    const { closed, make } = open();
    make().close();
    expect(closed).toEqual(['pd', 'context']);
    const broken = open({ fails: true });
    expect(broken.make).toThrow(/ENOMEM/);
    expect(broken.closed).toEqual(['context']);
  });

  it('is used with exactly the limits that connections need, and not with less', () => {
    expect(open().make().port(1, undefined, undefined)).toMatchObject({ number: 1 });
    for (const [name, value] of Object.entries(LIMITS)) {
      const device = open({ limits: { [name]: value - 1 } }).make();
      expect(device.port(1, undefined, undefined)).toMatch(`is ${value - 1}, but rc needs ${value}`);
    }
  });

  it('has the GID of an IPv4 address first, of RoCE v2 before others', () => {
    const ipv4 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
    const gids = [
      gid(0, 'roce_v1', ipv4),
      gid(1, 'roce_v2', [0xfe, ...ipv4.slice(1)]),
      gid(2, 'roce_v2', [...ipv4.slice(0, 10), 0xff, 0]),
      gid(3, 'roce_v2', ipv4),
    ];
    const chosen = (some: readonly GidEntry[]): number =>
      (open({ gids: some }).make().port(1, undefined, undefined) as IbPort).gid.index;
    expect([chosen(gids), chosen(gids.slice(0, 3)), chosen(gids.slice(0, 1))]).toEqual([3, 1, 0]);
  });
});

describe('the events of a device', () => {
  it('are read each time they come; its failure is reported, and that of a port is not', async () => {
    const fd = new EventFd();
    const waiting: AsyncEvent[] = [];
    const nextAsyncEvent = (): AsyncEvent | undefined => {
      fd.tryRead();
      return waiting.shift();
    };
    const texts: string[] = [];
    const log = { warn: (text: string) => texts.push(text), debug: () => undefined };
    let failures = 0;
    const device = { name: 'hca0', context: { asyncFd: fd.fd, nextAsyncEvent } } as unknown as IbDevice;
    const events = new AsyncEvents(device, log as never, () => {
      failures += 1;
    });
    const come = async (...some: AsyncEvent[]): Promise<void> => {
      waiting.push(...some);
      fd.signal();
      while (waiting.length > 0) await new Promise((resolve) => setImmediate(resolve));
      await new Promise((resolve) => setImmediate(resolve));
    };
    await come({ type: AsyncEventType.PORT_ERR, element: 2 });
    expect([texts.length, failures]).toEqual([1, 0]);
    expect(texts[0]).toMatch(/^hca0:2: /);
    await come({ type: AsyncEventType.DEVICE_FATAL, element: 0 });
    expect([texts.length, failures]).toEqual([2, 1]);
    events.close();
    fd.close();
  });
});

describe('slots that cannot be registered', () => {
  it('leave no memory', () => {
    const regMr = (): never => {
      throw new SyscallError('ibv_reg_mr', Errno.ENOMEM, '');
    };
    expect(() => new SlotMemory({ pd: { regMr } } as unknown as IbDevice, 4, 4096)).toThrow(/ENOMEM/);
  });
});

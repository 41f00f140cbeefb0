/** The choice of a channel: by direction, by the mask of the driver, and not one that other code uses. */

import { afterEach, describe, expect, it } from 'vitest';
import { scriptedFileCard } from '../../../test/fixtures/driver/scripted-file.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import type { RegisterMapping } from '../../driver/port.ts';
import { Errno } from '../../sys/index.ts';
import { GAUDI2_PROFILE, GAUDI3_PROFILE, HL_MEM_ARGS, NO_USER_RESOURCE, PdmaChannelA } from '../../uapi/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { GaudiErrorCode } from '../base/gaudi-error.ts';
import type { ChannelRoute } from './channel-route.ts';
import { DmaChannels, type DmaDirection } from './channels.ts';

expectNoLeaks();

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

function setUp({ mask = 0x7f_ffff, inUse = [] as readonly number[], first = 71, count = 256 } = {}) {
  const mapped: number[] = [];
  const closed: number[] = [];
  const state = { errno: 0, mapErrno: 0 };
  const { card, file } = scriptedFileCard({
    MEMORY: (args) => {
      if (state.errno !== 0) return -state.errno;
      const offset = Number(HL_MEM_ARGS.in.decode(args).map_block_block_addr - GAUDI3_PROFILE.cfg.start);
      HL_MEM_ARGS.out.encode({ block_handle: BigInt(offset), block_size: 4096 }, args);
      return 0;
    },
  });
  file.mapRegisters = (byteLength, handle): RegisterMapping => {
    expect(byteLength).toBe(4096);
    const offset = Number(handle) - 0xc540000;
    const die = Math.floor(offset / 0x800000);
    const group = Math.floor((offset % 0x800000) / 0x20000);
    const channel = die * 12 + group * 6 + (offset % 0x20000) / 0x1000;
    mapped.push(channel);
    const words = new Int32Array(1024);
    if (inUse.includes(channel)) words[PdmaChannelA.DESC_SUBMIT_FIFO_CFG / 4] = 1;
    return {
      byteLength,
      read: (at) => words[at / 4]!,
      write: (at, value) => {
        words[at / 4] = value;
      },
      close: () => void closed.push(channel),
    };
  };
  const info = { pdmaUserOwnedChMask: BigInt(mask), firstAvailableInterruptId: first, numberOfUserInterrupts: count };
  const channels = new DmaChannels(card, { ...info, profile: GAUDI3_PROFILE } as never);
  const device = {
    clock: new ManualClock(),
    file,
    mapHost: () => {
      if (state.mapErrno !== 0) throw new Error('refused');
      return { low: 0, high: 0, unmap: () => undefined };
    },
  };
  const open = (direction: DmaDirection): ChannelRoute => {
    const route = channels.open(device as never, direction, 2);
    closing.push(() => route.close());
    return route;
  };
  closing.push(() => card.close());
  return { channels, open, mapped, closed, state };
}

describe('a channel', () => {
  it('is of the group that the vendor uses in its direction, and of no other route', () => {
    const { open } = setUp();
    const directions = ['hostToDevice', 'deviceToHost', 'deviceToDevice', 'hostToDevice'] as const;
    const routes = directions.map(open);
    expect(routes.map(({ number, engineId }) => [number, engineId])).toEqual([
      [6, 126],
      [12, 132],
      [18, 138],
      [7, 127],
    ]);
  });

  it('is one that the driver gives to users, whatever its version', () => {
    const { open, mapped } = setUp({ mask: 1 << 3 });
    expect(open('deviceToHost').number).toBe(3);
    expect(mapped).toEqual([3]);
    const older = setUp({ mask: 0xfffffe });
    expect(older.open('deviceToDevice').number).toBe(18);
  });

  it('that is configured belongs to other code, and is left as it is', () => {
    const { open, mapped, closed } = setUp({ inUse: [6, 7] });
    expect(open('hostToDevice').number).toBe(8);
    expect([mapped, closed]).toEqual([
      [6, 7, 8],
      [6, 7],
    ]);
  });

  it('is refused if none is free, with the reason', () => {
    const { open, closed } = setUp({ mask: 0b11, inUse: [0, 1] });
    expect(() => open('hostToDevice')).toThrow(
      expect.objectContaining({
        code: GaudiErrorCode.CHANNEL_FAILED,
        message: expect.stringMatching(/no free DMA channel: other code of this process/),
      }),
    );
    expect(closed).toEqual([0, 1]);
    const none = setUp({ mask: 0 });
    expect(none.channels.limitation).toBe('the driver of gaudi3 reports no DMA channel for users');
    expect(() => none.open('hostToDevice')).toThrow(/reports no DMA channel for users/);
  });

  it('is unmapped and free again if its memory cannot be mapped', () => {
    const { open, state, closed } = setUp();
    state.mapErrno = Errno.ENOMEM;
    expect(() => open('hostToDevice')).toThrow('refused');
    expect(closed).toEqual([6]);
    state.mapErrno = 0;
    expect(open('hostToDevice').number).toBe(6);
  });

  it('passes on why its block cannot be mapped', () => {
    const { open, state } = setUp();
    state.errno = Errno.EINVAL;
    expect(() => open('hostToDevice')).toThrow(expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS }));
  });

  it('needs a generation that has channels', () => {
    const { card } = scriptedFileCard({});
    closing.push(() => card.close());
    expect(() => new DmaChannels(card, { profile: GAUDI2_PROFILE } as never)).toThrow(
      /neither queues nor DMA channels/,
    );
  });

  it('works without interrupts for users', () => {
    const { open } = setUp({ first: NO_USER_RESOURCE, count: 0 });
    expect(open('hostToDevice').number).toBe(6);
  });
});

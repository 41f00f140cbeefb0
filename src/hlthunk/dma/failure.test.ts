/** The error of a failed transfer: its code, its reason and its fault; and the events after which data is doubted. */

import { describe, expect, it } from 'vitest';
import { Errno } from '../../sys/index.ts';
import { HL_NOTIFIER_EVENT } from '../../uapi/index.ts';
import { Status } from '../../ucs/type/status.ts';
import type { CardFile } from '../base/card-file.ts';
import { GaudiErrorCode } from '../base/gaudi-error.ts';
import type { DeviceFault } from '../info/events.ts';
import { dmaError, doubtsData } from './faults.ts';

const cardOf = (more: object = {}): CardFile =>
  ({
    name: 'card 3',
    minor: 3,
    busId: '0000:03:00.0',
    lostReason: undefined,
    unusableReason: () => undefined,
    whyBusy: () => 'another process resets it',
    ...more,
  }) as unknown as CardFile;

const failed = (more: object = {}, card: object = {}) =>
  dmaError(cardOf(card), { status: Status.IO_ERROR, errno: Errno.EIO, isLost: true, fault: undefined, ...more });

describe('the error of a transfer', () => {
  it.each([
    [Status.TIMED_OUT, GaudiErrorCode.TIMEOUT],
    [Status.CANCELED, GaudiErrorCode.CHANNEL_FAILED],
    [Status.IO_ERROR, GaudiErrorCode.DMA_FAILED],
    [Status.NO_MEMORY, GaudiErrorCode.DMA_FAILED],
  ])('with status %i has the code %s', (status, code) => {
    expect(failed({ status }).code).toBe(code);
  });

  it('names the card, and the reason only if there is one', () => {
    const { message, details } = failed({ errno: 0 });
    expect(message).toMatch(/: a transfer of card 3 ended with \w+$/);
    expect(details).toMatchObject({ minor: 3, busId: '0000:03:00.0', fault: undefined });
    expect(failed({ fault: 'RAZWI' }).message).toMatch(/; last fault: RAZWI$/);
  });

  it('tells a rejected submission from a queue that has failed', () => {
    expect(failed({ isLost: false }).message).toMatch(
      /rejected its submission with EIO .*later transfers are not affected/,
    );
    expect(failed().message).toMatch(
      /accepts no more transfers: close the context and create a new one, or with hl-thunk .* open it again$/,
    );
    expect(failed({ errno: Errno.EBUSY }).message).toMatch(/another process resets it; this device/);
    expect(failed({}, { unusableReason: () => 'it has no power' }).message).toMatch(/: it has no power$/);
    expect(failed({}, { lostReason: 'removed' }).message).toMatch(/: removed$/);
  });
});

describe('data', () => {
  const fault = (mask: number) => ({ mask }) as DeviceFault;

  it.each([
    'UNDEFINED_OPCODE',
    'USER_ENGINE_ERR',
    'GENERAL_HW_ERR',
    'RAZWI',
    'PAGE_FAULT',
    'CRITICL_HW_ERR',
    'CRITICL_FW_ERR',
  ] as const)('is doubted after %s, also beside other events', (name) => {
    expect(doubtsData(fault(HL_NOTIFIER_EVENT[name]))).toBe(true);
    expect(doubtsData(fault(HL_NOTIFIER_EVENT[name] | HL_NOTIFIER_EVENT.DEVICE_RESET))).toBe(true);
  });
});

import { describe, expect, it } from 'vitest';
import { Errno } from '../../sys/index.ts';
import { GaudiErrorCode, GaudiErrorNumber, gaudiErrorNumber, gaudiErrorStatus, gaudiErrorText } from '../index.ts';
import { checkHostAddress, checkWord32, checkWord64, isDeviceLost, isOpAbsent } from './gaudi-error.ts';

describe('the numbers of the Gaudi errors', () => {
  it.each([
    [-1, 'DEVICE_NOT_FOUND', 'gaudi device not found'],
    [-2, 'OUT_OF_MEMORY', 'out of gaudi device memory or driver resources'],
    [-3, 'INVALID_PARAMS', 'invalid parameters'],
    [-4, 'DEVICE_BUSY', 'gaudi device is busy'],
    [-5, 'DMA_FAILED', 'dma transfer failed'],
    [-6, 'TIMEOUT', 'operation timed out'],
    [-7, 'PERMISSION_DENIED', 'permission denied'],
    [-8, 'CHANNEL_FAILED', 'channel failed'],
  ] as const)('%i is %s', (number, name, text) => {
    const code = GaudiErrorCode[name];
    expect([GaudiErrorNumber[name], gaudiErrorNumber(code)]).toEqual([number, number]);
    expect([gaudiErrorText(number), gaudiErrorText(code)]).toEqual([text, text]);
    expect(gaudiErrorStatus(number)).toBe(gaudiErrorStatus(code));
  });

  it.each([0, 1, -9, -1.5, Number.NaN, '-4', undefined])('%s is not one', (number) => {
    expect(() => gaudiErrorText(number as never)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
  });
});

describe('arguments', () => {
  const refusal = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });

  it('of host addresses are below 2^47', () => {
    expect(() => checkHostAddress('address', 2 ** 47 - 1)).not.toThrow();
    expect(() => checkHostAddress('address', 2 ** 47)).toThrow(refusal);
  });

  it('of 32 bits are below 2^32', () => {
    expect(() => checkWord32('word', 2 ** 32 - 1)).not.toThrow();
    expect(() => checkWord32('word', 2 ** 32)).toThrow(refusal);
  });

  it('of 64 bits are below 2^64', () => {
    expect(() => checkWord64('word', 2n ** 64n - 1n)).not.toThrow();
    expect(() => checkWord64('word', 2n ** 64n)).toThrow(refusal);
  });
});

describe('errnos of the driver', () => {
  const { EAGAIN, EBUSY, EINVAL, EIO, ENODEV, ENOTTY, EOPNOTSUPP, EPERM } = Errno;
  const ALL = [EAGAIN, EBUSY, EINVAL, EIO, ENODEV, ENOTTY, EOPNOTSUPP, EPERM];

  it('that mean a lost card are those of a reset, a failure and a removal', () => {
    expect(ALL.filter((errno) => isDeviceLost(-errno))).toEqual([EBUSY, EIO, ENODEV, EPERM]);
  });

  it('that mean an unknown op are those of a switch without it', () => {
    expect(ALL.filter((errno) => isOpAbsent(-errno))).toEqual([EINVAL, ENOTTY, EOPNOTSUPP]);
  });
});

import { describe, expect, it } from 'vitest';
import { GaudiErrorCode, GaudiErrorNumber, gaudiErrorNumber, gaudiErrorStatus, gaudiErrorText } from '../index.ts';

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

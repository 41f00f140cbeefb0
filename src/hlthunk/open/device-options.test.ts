/** The check of the options for opening a device. */

import { expect, it } from 'vitest';
import { checkDeviceOptions } from './device-options.ts';

const refusal = expect.objectContaining({
  code: 'ERR_GAUDI_INVALID_PARAMS',
  details: expect.objectContaining({ argument: 'slots' }),
});

it.each([1, 2, 64, 1024])('a queue may have %s slots, a power of two', (slots) => {
  expect(() => checkDeviceOptions({ dma: { slots } })).not.toThrow();
});

it.each([0, 3, 48, 1023, 2048, 1.5])('a queue may not have %s slots', (slots) => {
  expect(() => checkDeviceOptions({ dma: { slots } })).toThrow(refusal);
});

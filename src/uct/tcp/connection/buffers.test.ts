/** The memory that the connections of an interface share: its sizes, and whose bytes are in it. */

import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { RECORD_PLAIN_BYTES_MAX } from '../secure/session.ts';
import { TcpBuffers } from './buffers.ts';

expectNoLeaks();

describe('the memory for received bytes', () => {
  it.each([
    [64, false],
    [64, true],
    [2 * RECORD_PLAIN_BYTES_MAX, false],
    [2 * RECORD_PLAIN_BYTES_MAX, true],
  ])('has space for frames of %i bytes behind the rest of one, encrypted: %s', (frameBytes, isEncrypted) => {
    const buffers = new TcpBuffers(64, frameBytes, isEncrypted);
    expect(buffers.rxReadBytes).toBeGreaterThan(frameBytes);
    if (isEncrypted) expect(buffers.rxReadBytes).toBeGreaterThanOrEqual(RECORD_PLAIN_BYTES_MAX);
    expect(buffers.rx.byteLength).toBeGreaterThan(frameBytes + buffers.rxReadBytes);
    buffers.close();
  });

  it('is vacated by the connection before, once, when another one receives', () => {
    const buffers = new TcpBuffers(64, 64, false);
    const calls: string[] = [];
    const [one, two] = ['one', 'two'].map((name) => () => void calls.push(name)) as [() => void, () => void];
    for (const vacate of [one, one, two, two, one]) buffers.claim(vacate);
    expect(calls).toEqual(['one', 'two']);
    buffers.close();
    expect(calls).toEqual(['one', 'two']);
  });
});

/** Writing to a standard stream that is broken, beside writes of the program itself. */

import { Writable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { writeStandard } from './log.ts';

/** A stream that is never destroyed, as process.stderr; `fails` says whether writes fail. */
function standardStream(state: { fails: boolean }): Writable & { readonly texts: string[] } {
  const texts: string[] = [];
  const stream = new Writable({
    autoDestroy: false,
    write: (chunk: Buffer, _encoding, done) => {
      if (state.fails) {
        done(Object.assign(new Error('no space left on device'), { code: 'ENOSPC' }));
        return;
      }
      texts.push(chunk.toString());
      done();
    },
  });
  return Object.assign(stream, { texts });
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));

describe('writeStandard', () => {
  it('writes, and leaves no listener', async () => {
    const stream = standardStream({ fails: false });
    for (let i = 0; i < 20; i++) writeStandard(stream, `${i}\n`);
    await settled();
    expect(stream.texts).toHaveLength(20);
    expect(stream.listenerCount('error')).toBe(0);
  });

  it('loses the text of a stream that fails, and neither listeners nor warnings pile up', async () => {
    const stream = standardStream({ fails: true });
    const warnings: Error[] = [];
    const onWarning = (warning: Error): number => warnings.push(warning);
    process.on('warning', onWarning);
    for (let i = 0; i < 20; i++) writeStandard(stream, `${i}\n`);
    await settled();
    process.off('warning', onWarning);
    expect(warnings).toEqual([]);
    expect(stream.listenerCount('error')).toBe(0);
  });
});

/** `info -M`: what it measures is compiled, and its megabytes are those of ucx_info. */

import { describe, expect, it } from 'vitest';
import { measureMemcpy, memcpyText } from './system.ts';

/** A copy that takes 10 us until it is compiled, after its 20,000th call, and a nanosecond for each byte from then on. */
function coldCopies(): Parameters<typeof measureMemcpy>[0] {
  let nowNs = 0;
  let calls = 0;
  return {
    copy: (_target, _source, byteLength) => {
      nowNs += ++calls > 20_000 ? byteLength : 10_000;
    },
    nowNs: () => nowNs,
  };
}

describe('info -M', () => {
  it('warms up before the first size', () => {
    const results = measureMemcpy(coldCopies());
    expect(results[0]!.byteLength).toBe(4096);
    for (const { bytesPerSecond } of results) expect(bytesPerSecond).toBeCloseTo(1e9, 0);
  });

  it('prints megabytes of 2^20 bytes', () => {
    expect(memcpyText([{ byteLength: 4096, bytesPerSecond: 2 ** 30 }])).toContain(
      '#           4096 bytes: 1024.000 MB/s',
    );
  });
});

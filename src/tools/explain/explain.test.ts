/** The arguments and the text of `gaudi-ucx explain`. */

import { describe, expect, it } from 'vitest';
import { catches } from '../../../test/fixtures/catches.ts';
import type { SizeExplanation } from '../../api/contract/explanation.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { type ExplainArguments, readExplainArguments } from './options.ts';
import { type ExplainReport, explainText, REPORT_COLUMNS } from './report.ts';

const ARGUMENTS: ExplainArguments = { op: 'put', local: 'host', remote: 'gaudi:1', size: '8', peer: 'self' };
const read = (part: Partial<ExplainArguments>) => readExplainArguments({ ...ARGUMENTS, ...part });

describe('the arguments', () => {
  it('are read', () => {
    expect(read({})).toEqual({
      operation: 'put',
      local: { memoryType: MemoryType.HOST, card: undefined },
      remote: { memoryType: MemoryType.GAUDI, card: 1 },
      sizes: [8],
      otherProcess: false,
      place: undefined,
      engine: undefined,
    });
    expect(read({ peer: 'node2:4711' })).toMatchObject({ otherProcess: true, place: { host: 'node2', port: 4711 } });
    expect(read({ peer: '[::1]:7' })).toMatchObject({ place: { host: '::1', port: 7 } });
    const workerAddress = new Uint8Array(60).fill(0xfb);
    const text = Buffer.from(workerAddress).toString('base64url');
    expect(read({ peer: text })).toMatchObject({ otherProcess: true, place: { workerAddress } });
    expect(read({ engine: 'LIBUCX' })).toMatchObject({ engine: 'libucx' });
    expect(read({ op: 'TAG', local: 'GAUDI' })).toMatchObject({ operation: 'tag', local: { card: undefined } });
  });

  it.each([
    ['4K..16K', [4096, 8192, 16_384]],
    ['3..9', [3, 4, 8, 9]],
    ['1M,8,8', [8, 2 ** 20]],
    ['7..7', [7]],
    ['1..4,1g', [1, 2, 4, 2 ** 30]],
  ])('size %s', (size, sizes) => {
    expect(read({ size }).sizes).toEqual(sizes);
  });

  it('of an atomic operation are words', () => {
    expect(read({ op: 'atomic', size: '1..64' }).sizes).toEqual([4, 8]);
    expect(() => read({ op: 'atomic', size: '16' })).toThrow(/argument size must be 4 or 8/);
  });

  it.each([
    [{ op: 'move' }, 'op'],
    [{ peer: 'moon' }, 'peer'],
    [{ peer: 'moon:0' }, 'peer'],
    [{ peer: 'moon:70000' }, 'peer'],
    [{ engine: 'steam' }, 'engine'],
    [{ local: 'disk' }, 'local'],
    [{ local: 'host:1' }, 'local'],
    [{ remote: 'gaudi:' }, 'remote'],
    [{ remote: 'gaudi:x' }, 'remote'],
    [{ size: '' }, 'size'],
    [{ size: '0' }, 'size'],
    [{ size: '4K..' }, 'size'],
    [{ size: '4K..1K' }, 'size'],
    [{ size: '1..2..3' }, 'size'],
    [{ size: 'inf' }, 'size'],
    [{ size: Array.from({ length: 65 }, (_, index) => index + 1).join(',') }, 'size'],
  ])('%o are refused by name', (part, argument) => {
    expect(() => read(part)).toThrow(new RegExp(`argument ${argument} `));
  });
});

function size(bytes: number, protocol: string, losers: SizeExplanation['losers']): SizeExplanation {
  const winner = {
    transport: 'gaudi_ipc/gaudi0',
    protocol,
    estimatedNs: bytes,
    bandwidth: 1000 * 2 ** 20,
    note: '2 of 3 links up',
  };
  return { bytes, winner, losers };
}

const out = (transport: string, reason: string) => ({ transport, protocol: undefined, reason });
const REPORT: ExplainReport = {
  operation: 'put',
  local: 'host',
  remote: 'gaudi:1',
  otherProcess: false,
  emulated: true,
  engine: { name: 'native', version: '1.2.3', reason: 'UCX_ENGINE=native' },
  sizes: [],
};

describe('the report', () => {
  function expectRows(textOf: typeof explainText): void {
    const losers = [
      out('gaudi_cpy/gaudi0', 'is elsewhere'),
      out('gaudi_cpy/gaudi2', 'is elsewhere'),
      out('tcp', 'is not'),
    ];
    const sizes = [size(1024, 'put/short', []), size(2048, 'put/zcopy', losers), size(4096, 'put/zcopy', losers)];
    expect(textOf({ ...REPORT, sizes })).toBe(
      [
        'put: local host memory, remote gaudi:1 memory, cards emulated',
        'engine native 1.2.3 (UCX_ENGINE=native)',
        'estimates are those of the cost model, not measurements',
        '',
        '1.0 KiB  put/short  gaudi_ipc/gaudi0  1.02 us  1000.0 MB/s',
        '    2 of 3 links up',
        '',
        '2.0 KiB .. 4.0 KiB  put/zcopy  gaudi_ipc/gaudi0  2.05 us .. 4.10 us  1000.0 .. 1000.0 MB/s',
        '    2 of 3 links up',
        '    not gaudi_cpy/gaudi0,gaudi2: is elsewhere',
        '    not tcp: is not',
      ].join('\n'),
    );
  }

  it('has one row for consecutive sizes with the same choice, and one line for devices rejected for the same reason', () => {
    expectRows(explainText);
  });

  it('is noticed if it leaves out the reasons, or joins what is not the same', async () => {
    const mute: typeof explainText = (report) =>
      explainText({ ...report, sizes: report.sizes.map((each) => ({ ...each, losers: [] })) });
    await catches(expectRows, mute, /to be/);
    const joined: typeof explainText = (report) =>
      explainText({ ...report, sizes: report.sizes.map((each) => ({ ...each, winner: report.sizes[0]!.winner })) });
    await catches(expectRows, joined, /to be/);
  });

  it('tells reasons at both ends where they change', () => {
    const sizes = [
      size(1, 'put/zcopy', [out('x/0', 'costs 2.0 times')]),
      size(2, 'put/zcopy', [out('x/0', 'costs 1.1 times')]),
    ];
    expect(explainText({ ...REPORT, sizes })).toContain('    not x/0: costs 2.0 times .. costs 1.1 times');
  });

  it('names the owner of the remote memory', () => {
    expect(explainText({ ...REPORT, otherProcess: true })).toMatch(
      /^put: .* gaudi:1 memory of another process, cards emulated$/m,
    );
  });

  it('reports that no transport can do it', () => {
    const sizes = [{ bytes: 8, winner: undefined, losers: [out('x', 'cannot')] }];
    expect(explainText({ ...REPORT, sizes, emulated: false })).toMatch(
      /memory\n.*\n\n8 B {2}no transport supports it\n {4}not x: cannot$/,
    );
  });

  it('prints no estimates if there are none', () => {
    const sizes = [
      {
        ...size(8, 'put/libucp', []),
        winner: { transport: 'libucp', protocol: 'put/libucp', estimatedNs: undefined, bandwidth: undefined },
      },
    ];
    expect(explainText({ ...REPORT, sizes })).toMatch(/\nengine .*\n\n8 B {2}put\/libucp {2}libucp$/);
  });

  it('stays within its columns', () => {
    const sizes = [size(8, 'put/zcopy', [out('x/0', 'word '.repeat(80)), out('y/0', 'x'.repeat(300))])];
    const engine = { ...REPORT.engine, reason: 'why '.repeat(60) };
    for (const line of explainText({ ...REPORT, engine, sizes }).split('\n'))
      expect(line.length).toBeLessThanOrEqual(REPORT_COLUMNS);
  });
});

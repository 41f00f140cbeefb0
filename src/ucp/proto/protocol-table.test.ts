import { describe, expect, it } from 'vitest';
import { describeOperation, describeProtocol, protocolTable, sizeRange, type TableRow } from './protocol-info.ts';

describe('a table', () => {
  it('looks like one of UCX', () => {
    const rows: readonly TableRow[] = [
      ['0..8184', 'eager short', 'self/memory0'],
      ['9807..inf', 'rendezvous zero-copy', '55% on rc_mlx5 and 45% on rc_mlx5'],
    ];
    expect(protocolTable('ep_cfg[2]', 'tagged message by ucp_tag_send* from host memory', rows)).toEqual([
      '+-----------+----------------------------------------------------------+',
      '| ep_cfg[2] | tagged message by ucp_tag_send* from host memory         |',
      '+-----------+----------------------+-----------------------------------+',
      '|   0..8184 | eager short          | self/memory0                      |',
      '| 9807..inf | rendezvous zero-copy | 55% on rc_mlx5 and 45% on rc_mlx5 |',
      '+-----------+----------------------+-----------------------------------+',
    ]);
  });

  it('is as wide as its longest part', () => {
    for (const title of ['t', 'a title that is longer than all of the cells together']) {
      for (const heading of ['h', 'a heading that is longer than the sizes']) {
        const lines = protocolTable(heading, title, [
          ['7', '0..1', 'short', 'x'],
          ['100', '2..inf', 'zero-copy', 'transport/device'],
        ]);
        expect(new Set(lines.map((line) => line.length)).size).toBe(1);
        expect(lines[1]).toContain(`| ${heading}`);
        expect(lines[1]).toContain(`| ${title}`);
      }
    }
  });
});

describe('words', () => {
  it('are those of UCX, or the own ones', () => {
    expect(sizeRange(1, 17297)).toBe('1..17297');
    expect(sizeRange(17298, Number.POSITIVE_INFINITY)).toBe('17298..inf');
    expect(describeProtocol('put/zcopy')).toBe('zero-copy');
    expect(describeProtocol('tag/rndv/put')).toBe('rendezvous zero-copy write to remote');
    expect(describeProtocol('rndv/other')).toBe('rndv/other');
    expect(describeOperation('get')).toBe('remote memory read by ucp_get*');
    expect(describeOperation('flush')).toBe('flush');
  });
});

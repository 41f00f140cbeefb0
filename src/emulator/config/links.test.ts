import { describe, expect, it } from 'vitest';
import { DriverClient } from '../../../test/contract/driver/driver-client.ts';
import { useErrnoRecord } from '../../../test/fixtures/driver/errno-record.ts';
import { close, Errno } from '../../sys/index.ts';
import { createEmulatedNode } from '../index.ts';
import { parseLinks, printLinks } from './links.ts';

useErrnoRecord();

describe('links', () => {
  it.each([
    ['full', []],
    ['^0-1', [[0, 1]]],
    [
      '^0-1,2-5',
      [
        [0, 1],
        [2, 5],
      ],
    ],
  ])('%s is read and printed', (text, pairs) => {
    expect(parseLinks(text)).toEqual(pairs);
    expect(printLinks(parseLinks(text))).toBe(text);
  });

  it.each(['', 'none', '0-1', '^', '^0', '^0-1,', '^a-b', '^0-1-2'])('%j is rejected', (text) => {
    expect(() => parseLinks(text)).toThrow(/argument links must be full/);
  });

  it.each([[[0, 0]], [[0, 2]], [[-1, 0]], [[0.5, 1]]] as [number, number][][])(
    'between cards %o are refused',
    (pair) => {
      expect(() => createEmulatedNode({ cards: 2, absentLinks: [pair] })).toThrow(/absentLinks/);
    },
  );

  it('that are absent prevent the import of memory of the other card: ENXIO', () => {
    const node = createEmulatedNode({ cards: 3, dmaThreads: 0, absentLinks: [[1, 0]] });
    const [exporter, unlinked, linked] = [0, 1, 2].map((minor) => new DriverClient(node.open(minor)));
    const memory = exporter!.mapDevice(exporter!.allocate(1).out).out;
    const { out: fd } = exporter!.exportDmabuf(memory, 65536);
    expect(unlinked!.importDmabuf(fd, 65536)).toEqual({ result: -Errno.ENXIO, out: 0n });
    expect(linked!.importDmabuf(fd, 65536).result).toBe(0);
    close(fd);
    for (const client of [linked, unlinked, exporter]) client!.close();
    node.close();
  });
});

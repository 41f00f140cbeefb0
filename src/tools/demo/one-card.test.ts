/** The demonstration on one card: its file arrives as it was, and its progress bar is removed, also if it fails. */

import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { runOneCard } from './one-card.ts';

const SEGMENT = 2 ** 20;
const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-demo-'));

afterAll(() => rmSync(folder, { recursive: true }));

describe('one card', () => {
  /** A terminal; `onDraw` runs when the bar is drawn. */
  const terminal = (onDraw: () => void) => {
    const written: string[] = [];
    const write = (text: string): void => {
      written.push(text);
      onDraw();
    };
    return { written, isTTY: true, write };
  };
  const file = join(folder, 'file');

  it('returns a file of several segments as it was', async () => {
    writeFileSync(file, Buffer.alloc(2 * SEGMENT + 7, 'abc'));
    const output = terminal(() => {});
    const { before, after, byteLength } = await runOneCard({ file, output, segmentBytesMax: SEGMENT });
    expect([after, byteLength]).toEqual([before, 2 * SEGMENT + 7]);
    expect(output.written.at(-2)).toMatch(/^\r\[#{32}\] 100 %/);
    expect(output.written.at(-1)).toMatch(/^\r +\r$/);
  });

  it('removes its bar when it fails', async () => {
    writeFileSync(file, Buffer.alloc(2 * SEGMENT, 'abc'));
    const output = terminal(() => truncateSync(file, SEGMENT));
    await expect(runOneCard({ file, output, segmentBytesMax: SEGMENT })).rejects.toThrow(/must not shrink/);
    expect(output.written.at(-2)).toMatch(/^\r\[#+\.+\] +\d+ %/);
    expect(output.written.at(-1)).toMatch(/^\r +\r$/);
  });
});

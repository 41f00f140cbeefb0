/** `gaudi-ucx perftest --pattern` and `--kv` as users run them: checked data, bytes of the formula, ranks of a launcher, ranks that fail. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { freePort } from '../../fixtures/processes/free-port.ts';
import { MAIN, refusal, useCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useCommandLine();

describe('gaudi-ucx perftest --pattern', { timeout: 60_000 }, () => {
  it('prints a row for each size', () => {
    const args = ['perftest', '--pattern', 'all-to-all', '--ranks', '3', '--batch', '16', '-s', '1000..4k', '-n', '20'];
    const text = cli.output([...args, '-V']);
    expect(text).toMatch(/^# all-to-all, 3 ranks, put of lists, host to host, 20 iterations\n/);
    expect(text).toContain('# bytes = ranks * (ranks - 1) * batch * size * iterations\n');
    const rows = text.split('\n').filter((line) => /^ +\d/.test(line));
    expect(rows.map((row) => row.trim().split(/ +/)).map((row) => [...row.slice(0, 5), row[10], row[11]])).toEqual(
      [1000, 2000, 4000].map((size) => [
        String(size),
        '16',
        '16',
        '120',
        String(3 * 2 * 16 * size * 20),
        '0',
        'posix/memory',
      ]),
    );
  });

  it('measures a KV cache between cards, and gets, as JSON', () => {
    const kv = ['--kv', 'layers=3,tokens=100', '--ranks', '3', '-m', 'gaudi', '-n', '4', '-w', '1', '-V', '--json'];
    for (const [pattern, test] of [
      ['one-to-many', 'ucp_put_bw'],
      ['many-to-one', 'ucp_get'],
    ] as const) {
      const run = JSON.parse(
        cli.output(['perftest', '--pattern', pattern, '-t', test, ...kv], { UCX_GAUDI_EMULATOR_CARDS: '3' }),
      );
      const bytes = 2 * (2 * 3 * 8 * 128 * 112 * 2) * 4;
      expect(run).toMatchObject({ pattern, ranks: 3, emulated: true, kv: { layers: 3, tokens: 100, dtype: 'bf16' } });
      const [row, ...rest] = run.results;
      expect(rest).toEqual([]);
      expect(row).toMatchObject({ blocks: 42, batch: 14, transfers: 8, bytes, formulaBytes: bytes, wrong: 0 });
      expect(row.carrier).toMatch(/^gaudi_ipc\//);
      expect(row.bytesPerSecond).toBeCloseTo((bytes * 1e9) / row.elapsedNs, 3);
      expect(row.p50Ns > 0 && row.p50Ns <= row.p90Ns && row.p90Ns <= row.p99Ns).toBe(true);
      expect(row.p99Ns).toBeLessThanOrEqual(row.elapsedNs);
    }
  });

  it('joins the ranks of a launcher; rank 0 prints', async () => {
    const port = String(await freePort());
    const args = [MAIN, 'perftest', '--pattern', 'pairwise', '--batch', '4', '-n', '5', '-V', '-v'];
    const outputs = await Promise.all(
      ['0', '1'].map(async (rank) => {
        const env = { ...process.env, RANK: rank, WORLD_SIZE: '2', MASTER_ADDR: '127.0.0.1', MASTER_PORT: port };
        const child = spawn(process.execPath, args, { env: { ...env, UCX_TLS: 'self,posix' } });
        let output = '';
        for (const stream of [child.stdout, child.stderr]) {
          stream.on('data', (bytes: Buffer) => {
            output += bytes.toString();
          });
        }
        const [code] = await once(child, 'close');
        expect({ code, output }).toMatchObject({ code: 0 });
        return output;
      }),
    );
    expect(outputs[0]).toMatch(/^size,batch,.*\n65536,4,4,5,1310720,[\d.,]+,0,posix\/memory\n$/);
    expect(outputs[1]).toBe('');
  });

  it('fails with the reason of the rank that failed', () => {
    const { code, err } = cli.run(['perftest', '--pattern', 'pairwise', '-m', 'gaudi'], {
      UCX_TLS: 'self,posix',
    });
    expect(code).toBe(1);
    expect(err).toMatch(/rank \d: argument -m must not be gaudi on a rank without a card/);
  });

  it.each([
    [['--pattern', 'ring'], /--pattern must be one of/],
    [['localhost', '--pattern', 'pairwise'], /host must not be used with --pattern/],
    [['--kv', 'tokens=0'], /--kv tokens must be an integer/],
    [['--ranks', '4', '-l'], /-l with --pattern is not supported/],
  ])('refuses %j', async (args, message) => {
    const { code, out, err } = await refusal(['perftest', ...args]);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(message);
  });
});

/** `gaudi-ucx coll` as users run it: its table, CSV and JSON, checked data, ranks of a launcher, and what it refuses. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { freePort } from '../../fixtures/processes/free-port.ts';
import { requires } from '../../fixtures/requires.ts';
import { MAIN, refusal, useCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useCommandLine();
const SHORT = ['-n', '2', '-w', '0'];

describe('gaudi-ucx coll', { timeout: 60_000 }, () => {
  it('prints a row for each size, with the units of nccl-tests, and says that cards are emulated', () => {
    const text = cli.output([
      'coll',
      '--test',
      'all_reduce',
      '--size',
      '1K..16K',
      '--ranks',
      '2',
      '--explain',
      ...SHORT,
    ]);
    const rows = text.split('\n').filter((line) => /^ +\d/.test(line) && line.includes('float32'));
    expect(rows.map((row) => row.trim().split(/ +/).slice(0, 5).join(' '))).toEqual([
      '1024 256 float32 sum -1',
      '4096 1024 float32 sum -1',
      '16384 4096 float32 sum -1',
    ]);
    // The column of wrong ranks.
    expect(rows.map((row) => row.trim().split(/ +/)[8])).toEqual(['0', '0', '0']);
    expect(text).toMatch(/# emulated: .+\n/);
    expect(text).toMatch(/allReduce: 2 ranks on one node/);
    expect(text).toMatch(/# average bus bandwidth: \d+\.\d{3} GB\/s\n$/);
  });

  it('prints JSON and CSV with the same figures', () => {
    const options = [
      'coll',
      '--test',
      'reduce_scatter',
      '-m',
      'host',
      '-d',
      'bf16',
      '-o',
      'max',
      '-b',
      '60',
      '--ranks',
      '3',
    ];
    const { results, ...run } = JSON.parse(cli.output([...options, '--json', ...SHORT]));
    expect(run).toMatchObject({ ranks: 3, dtype: 'bfloat16', op: 'max', collective: 'reduceScatter', emulated: false });
    const [row] = results;
    expect(row).toMatchObject({ bytes: 60, count: 10, wrong: 0 });
    expect(row.algorithmBandwidth).toBeCloseTo(60 / row.timeNs, 9);
    expect(row.busBandwidth).toBeCloseTo((row.algorithmBandwidth * 2) / 3, 9);
    const [head, line, ...rest] = cli
      .output([...options, '--csv', ...SHORT])
      .trimEnd()
      .split('\n');
    expect(head).toBe('size,count,type,redop,root,time_us,algbw_GBps,busbw_GBps,wrong,algorithm');
    expect(line).toMatch(/^60,10,bfloat16,max,-1,[\d.]+,[\d.]+,[\d.]+,0,\w/);
    expect(rest).toEqual([]);
  });

  it.each([
    ['tcp', { UCX_TLS: 'self,tcp' }, undefined],
    ['libucp', { UCX_ENGINE: 'libucx' }, installedLibucp().skipReason],
  ] as const)('has the data of the oracle over %s', (_, env, skipReason) => {
    requires(skipReason === undefined, 'libucp');
    for (const test of ['all_reduce', 'all_to_all', 'scatter']) {
      const options = ['coll', '--test', test, '-m', 'host', '--size', '1K..1M', '--ranks', '3', '--json', ...SHORT];
      const { results } = JSON.parse(cli.output(options, env));
      expect(results.map(({ wrong }: { wrong: number }) => wrong)).toEqual(results.map(() => 0));
      expect(results.length).toBe(6);
    }
  });

  it('joins by the environment of a launcher; rank 0 prints', async () => {
    const port = String(await freePort());
    const args = [MAIN, 'coll', '--test', 'broadcast', '-r', '1', '-m', 'host', '-b', '1K', '--csv', ...SHORT];
    const outputs = await Promise.all(
      ['0', '1'].map(async (rank) => {
        const env = { ...process.env, RANK: rank, WORLD_SIZE: '2', MASTER_ADDR: '127.0.0.1', MASTER_PORT: port };
        const child = spawn(process.execPath, args, { env: { ...env, UCX_TLS: 'self,posix' } });
        let output = '';
        child.stdout.on('data', (bytes: Buffer) => {
          output += bytes.toString();
        });
        const [code] = await once(child, 'close');
        expect(code).toBe(0);
        return output;
      }),
    );
    expect(outputs[0]).toMatch(/\n1024,256,float32,none,1,/);
    expect(outputs[1]).toBe('');
  });

  it.each([
    [['--test', 'all_sum'], /--test must be one of all_reduce/],
    [['-d', 'float8'], /-d must be one of/],
    [['-o', 'xor'], /-o must be one of/],
    [['-b', 'big'], /-b must be a size/],
    [['-b', '1K', '-e', '512'], /-e must be at least/],
    [['--size', '64M..1K'], /--size must be at least the smallest size of 67108864 bytes, got "1K"/],
    [['-A', 'magic'], /-A must be one of recursive doubling, ring, two-level/],
    [['--size', '1K..'], /--size must be a size/],
    [['-f', '1'], /-f must be an integer from 2/],
    [['-n', '0'], /-n must be an integer from 1/],
    [['-r', '2'], /-r must be an integer from 0 to 1/],
    [['-c', '2'], /-c must be 0 or 1/],
    [['-m', 'disk'], /--memory must be host or gaudi/],
    [['--ranks', '0'], /--ranks must be an integer/],
  ])('refuses %j', async (args, message) => {
    const { code, out, err } = await refusal(['coll', ...args]);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(message);
  });

  it('fails with the reason of the rank that failed', () => {
    const { code, err } = cli.run(['coll', '-m', 'host', '-b', '1K', ...SHORT], { UCX_TLS: 'self' });
    expect(code).toBe(1);
    expect(err).toMatch(/rank \d: no transport reaches the worker/);
  });

  it('says what it waits for', async () => {
    const port = String(await freePort());
    const env = { ...process.env, RANK: '1', WORLD_SIZE: '2', MASTER_ADDR: '127.0.0.1', MASTER_PORT: port };
    const child = spawn(process.execPath, [MAIN, 'coll', '-m', 'host', ...SHORT], { env });
    const closed = once(child, 'close');
    const told = await once(child.stderr, 'data', { signal: AbortSignal.timeout(20_000) }).catch(() => undefined);
    child.kill('SIGKILL');
    await closed;
    expect(String(told)).toBe(`gaudi-ucx: rank 1 of 2 waits for the others at 127.0.0.1:${port}\n`);
  });

  it.each([{ RANK: '0' }, { WORLD_SIZE: '2' }])('refuses an incomplete environment of a launcher: %j', (env) => {
    const { code, err } = cli.run(['coll', '-m', 'host', '-b', '1K', ...SHORT], env);
    expect(code).toBe(2);
    expect(err).toMatch(/argument (RANK|WORLD_SIZE) must be set by the launcher, to a number, got nothing/);
  });
});

/** `explain --serve` and `explain --peer`: another process, found by its listener or by its worker address, is explained as one that this command starts. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ExplainReport } from '../../../src/tools/explain/report.ts';
import { catches } from '../../fixtures/catches.ts';
import { MAIN, useCommandLine } from '../../fixtures/tools/command-line.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

function expectSameWinners(report: ExplainReport, expected: ExplainReport): void {
  const winners = ({ sizes }: ExplainReport) => sizes.map(({ winner }) => `${winner?.protocol} ${winner?.transport}`);
  expect(winners(report)).toEqual(winners(expected));
}

describe('explain --peer', { timeout: 60_000 }, () => {
  const cli = useCommandLine();
  let server: ReturnType<typeof spawn>;
  const places: string[] = [];
  beforeAll(async () => {
    const env = environment({ UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '1' });
    server = spawn(process.execPath, [MAIN, 'explain', '--serve', '127.0.0.1'], {
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    for await (const line of createInterface({ input: server.stdout! })) {
      places.push(line.replace('--peer ', ''));
      if (places.length === 2) break;
    }
  }, 30_000);
  afterAll(async () => {
    server.kill('SIGTERM');
    if (server.exitCode === null) await once(server, 'exit');
  });

  const explain = (peer: string, ...args: string[]): ExplainReport =>
    JSON.parse(cli.output(['explain', '--json', '--size', '8,1M', ...args, '--peer', peer])) as ExplainReport;

  it.each([0, 1])('explains a process that serves, by place %i of those it prints', (index) => {
    for (const op of ['put', 'tag']) {
      const [report, expected] = [explain(places[index]!, '--op', op), explain('process', '--op', op)];
      expect(report).toMatchObject({ operation: op, local: 'host', remote: 'host', otherProcess: true });
      expectSameWinners(report, expected);
    }
  });

  it('notices an explanation that is the same for every size', async () => {
    const expected = explain('process', '--op', 'tag');
    const [first] = expected.sizes;
    const constant = { ...expected, sizes: expected.sizes.map((each) => ({ ...each, winner: first!.winner })) };
    await catches((report: ExplainReport) => expectSameWinners(report, expected), constant, /deeply equal/);
  });

  it('says why a peer cannot be reached', async () => {
    server.kill('SIGTERM');
    expect(await once(server, 'exit')).toEqual([0, null]);
    const { code, err } = cli.run(['explain', '--peer', places[0]!]);
    expect({ code, reason: /connection refused.*ERR_UNREACHABLE/.test(err) }).toEqual({ code: 1, reason: true });
    const wrong = cli.run(['explain', '--serve', '127.0.0.1:99999']);
    expect({ code: wrong.code, named: wrong.err.includes('argument --serve') }).toEqual({ code: 2, named: true });
  });
});

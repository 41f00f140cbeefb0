/** Commands and contexts name the setting or the machine that is the cause, and a failure has an exit code. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { request } from 'node:http';
import { describe, expect, it, onTestFinished } from 'vitest';
import { QUERY_NAMES } from '../../../src/tools/smi/queries.ts';
import { device, failureOf, useContexts } from '../../fixtures/contexts.ts';
import { MAIN, useCommandLine } from '../../fixtures/tools/command-line.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const cli = useCommandLine();

describe('gaudi-ucx smi', () => {
  it('prints CSV whose rows have as many fields as the header', async () => {
    const text = await cli.outputHere(['smi', '-Q', QUERY_NAMES.join(','), '-f', 'csv']);
    const counts = text
      .trim()
      .split('\n')
      .map((line) => line.split(',').length);
    expect(counts.length).toBeGreaterThan(1);
    expect(new Set(counts)).toEqual(new Set([QUERY_NAMES.length]));
  });

  it.each([[], ['-L'], ['-Q', 'index'], ['-q'], ['--json'], ['topo']].map((args) => [args]))(
    'fails on a machine without cards: %j',
    async (args) => {
      const { code, out, err } = await cli.runHere(['smi', ...args], { UCX_GAUDI_DRIVER: 'kernel' });
      expect({ code, out }).toEqual({ code: 1, out: '' });
      expect(err).toMatch(/the kernel node has no cards: \S.*\(ERR_GAUDI_DEVICE_NOT_FOUND\)\n$/);
    },
  );
});

describe('an empty UCX_TLS', () => {
  it.each([['self'], ['process']])('is the cause that explain names for the peer %s', async (peer) => {
    const args = ['explain', '--op', 'tag', '--peer', peer];
    const { code, err } = cli.run(args, { UCX_TLS: '', UCX_ENGINE: 'native' });
    expect(code).toBe(1);
    expect(err).toContain('UCX_TLS is empty: unset it to use all transports');
    expect(err).toContain('excluded by UCX_TLS, which is empty');
    expect(err).not.toContain('the peer process');
  });
});

describe('cards that do not exist', () => {
  const fixture = useContexts();

  it.each([
    [
      'HABANA_VISIBLE_DEVICES',
      '9',
      /HABANA_VISIBLE_DEVICES=9 names cards that do not exist: 9; the indices of this machine are 0, 1/,
    ],
    [
      'HABANA_VISIBLE_MODULES',
      '77,9',
      /HABANA_VISIBLE_MODULES=77,9 names cards that do not exist: 77, 9; the modules of this machine are \d, \d/,
    ],
  ])('in %s=%s are a warning, and the reason why there is no memory of cards', async (name, value, message) => {
    fixture.allow(message);
    const { context } = await fixture.openOn(fixture.node(), { env: { [name]: value } });
    const warnings = fixture.records.filter((record) => message.test(record.message));
    expect(warnings).toHaveLength(1);
    expect((await failureOf(() => device({ context }, 4096))).message).toMatch(message);
  });

  it('beside those that do are a warning', async () => {
    fixture.allow(/names cards that do not exist: 9;/);
    const { context } = await fixture.openOn(fixture.node(), { env: { HABANA_VISIBLE_DEVICES: '1,9' } });
    expect(device({ context }, 4096, 1).sysDevice).toBe(1);
    expect(fixture.records.filter(({ message }) => message.includes('do not exist'))).toHaveLength(1);
  });
});

describe('gaudi-ucx metrics', { timeout: 20_000 }, () => {
  it('answers requests to loopback names only, with any query', async () => {
    const server = spawn(process.execPath, [MAIN, 'metrics', '--port', '0'], {
      env: environment({ UCX_GAUDI_DRIVER: 'emulator' }),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    onTestFinished(() => void server.kill());
    const [url] = (await once(server.stdout, 'data')) as [Buffer];
    const { port } = new URL(url.toString().trim());
    const ask = async (path: string, host: string): Promise<number | undefined> => {
      const sent = request({ port, path, host: '127.0.0.1', headers: { host }, agent: false });
      sent.end();
      const [answer] = (await once(sent, 'response')) as [import('node:http').IncomingMessage];
      answer.resume();
      return answer.statusCode;
    };
    for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, 'localhost', '[::1]:1234', 'LOCALHOST:9']) {
      expect([host, await ask('/metrics', host)]).toEqual([host, 200]);
    }
    for (const host of [
      'attacker.example',
      `attacker.example:${port}`,
      'localhost.attacker.example',
      '127.0.0.1.nip.io',
    ]) {
      expect([host, await ask('/metrics', host)]).toEqual([host, 403]);
    }
    for (const path of ['/metrics?x', '/metrics?name[]=ucx_context_info', '/metrics?']) {
      expect([path, await ask(path, 'localhost')]).toEqual([path, 200]);
    }
    for (const path of ['/', '/metric', '/metrics/x', '/?/metrics']) {
      expect([path, await ask(path, 'localhost')]).toEqual([path, 404]);
    }
    server.kill('SIGTERM');
    expect(await once(server, 'exit')).toEqual([0, null]);
  });
});

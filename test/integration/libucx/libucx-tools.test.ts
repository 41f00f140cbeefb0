import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { TESTS } from '../../../src/tools/perftest/spec.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const { folder, run, output } = useCommandLine();

const { libucp, skipReason } = installedLibucp();
if (skipReason !== undefined) console.info(`skipped: tools over libucp (${skipReason})`);
const NOWHERE = { UCX_LIBUCP_PATH: '/nowhere/libucp.so.0' };
const LIBUCX = { UCX_ENGINE: 'libucx', UCX_TLS: 'tcp,self', UCX_NET_DEVICES: 'lo' };

describe('without libucp', { timeout: 60_000 }, () => {
  it('info reports it in one line, with the package to install, and shows everything else', () => {
    const line =
      /^# UCX library: none: the UCX library \/nowhere\/libucp\.so\.0 is not installed: install UCX .*apt install libucx0.*$/gm;
    expect(output(['info', '-v'], NOWHERE).match(line)).toHaveLength(1);
    const text = output(['info', '-d'], NOWHERE);
    expect(text.match(line)).toHaveLength(1);
    expect(text).toMatch(/^# Memory domain: gaudi_ipc$/m);
  });

  it('explain uses the native engine if permitted, and prints the reason', () => {
    const args = ['explain', '--size', '8', '--engine'];
    expect(output([...args, 'auto'], NOWHERE).replace(/\n +/g, ' ')).toMatch(
      /^engine native \d\S+ \(engine: 'auto', and the UCX library \/nowhere\/\S+ is not installed: .*\)$/m,
    );
    const { code, out, err } = run([...args, 'libucx'], NOWHERE);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toMatch(/^gaudi-ucx: the UCX library .* is not installed: install .*\(ERR_LIBUCX_NOT_FOUND\)\n$/);
  });

  it('perftest over it fails with the package to install', () => {
    const { code, err } = run(['perftest', '-l', '-t', 'tag_lat'], { ...NOWHERE, UCX_ENGINE: 'libucx' });
    expect([code, err]).toEqual([1, expect.stringMatching(/apt install libucx0.*\(ERR_LIBUCX_NOT_FOUND\)/)]);
  });
});

describe.skipIf(libucp === undefined)('info (needs libucp)', { timeout: 60_000 }, () => {
  it('-v prints version and file', () => {
    const [, version, file] = output(['info', '-v'], {}).match(/^# UCX library: (\S+) \((.*)\)$/m)!;
    expect(version).toBe(libucp!.version);
    expect(existsSync(file!)).toBe(true);
  });

  it('-d --json is JSON without a warning of libucp, which the native engine does not use', () => {
    expect(JSON.parse(output(['info', '-d', '--json'], { UCX_NET_DEVICES: '^lo' }))).toHaveProperty('devices');
  });

  it('-d lists its transports and devices after the native ones, as the configuration allows them', () => {
    const text = output(['info', '-d'], { UCX_TLS: 'tcp,self', UCX_NET_DEVICES: 'lo' });
    for (const line of text.trimEnd().split('\n')) expect(line).toMatch(/^#/);
    const [own, other] = text.split(/^# UCX library: /m);
    expect(own).toMatch(/^# Memory domain: gaudi_ipc$/m);
    expect([...other!.matchAll(/ -- (\S+)$/gm)].map(([, name]) => name!.replace('memory0', 'memory')).sort()).toEqual([
      'self/memory',
      'tcp/lo',
    ]);
  });

  it('-d prints why it has none', () => {
    const { code, out } = run(['info', '-d'], { UCX_TLS: 'tcp', UCX_NET_DEVICES: 'none0' });
    expect([code, out]).toEqual([0, expect.stringMatching(/^#\s+< none: ucp_init.*>$/m)]);
  });

  it('does not warn about variables that libucp reads', () => {
    expect(output(['info', '-v'], { UCX_ENGINE: 'libucx', UCX_IB_GID_INDEX: '3' })).toMatch(/UCX library/);
  });
});

describe.skipIf(libucp === undefined)('explain (needs libucp)', { timeout: 60_000 }, () => {
  it('--json is JSON, also if libucp warns', () => {
    const args = ['explain', '--op', 'tag', '--json'];
    const { code, out, err } = run(args, { UCX_ENGINE: 'libucx', UCX_TLS: 'tcp,self,nosuch' });
    expect({ code, isWarned: /transport 'nosuch' is not available/.test(err) }).toEqual({ code: 0, isWarned: true });
    expect(JSON.parse(out)).toMatchObject({ operation: 'tag' });
  });

  it('prints the engine and the reason', () => {
    const args = ['explain', '--size', '8'];
    const over = `engine libucx ${libucp!.version}`;
    expect(output(args, LIBUCX)).toContain(`\n${over} (UCX_ENGINE=libucx)\n`);
    expect(output([...args, '--engine', 'libucx'], {})).toContain(`\n${over} (engine: 'libucx')\n`);
    expect(output([...args, '--engine', 'auto'], {})).toContain(`\n${over} (engine: 'auto', and libucp.so.0 is UCX`);
    expect(output([...args, '--engine', 'native'], LIBUCX)).toMatch(/^engine native \S+ \(engine: 'native'\)$/m);
    const report = JSON.parse(output([...args, '--json'], LIBUCX)) as object;
    expect(report).toMatchObject({ engine: { name: 'libucx', version: libucp!.version, reason: 'UCX_ENGINE=libucx' } });
  });

  it('uses another process over the same engine', () => {
    const text = output(['explain', '--size', '8', '--peer', 'process', '--engine', 'libucx'], {});
    expect(text).toMatch(/^put: local host memory, remote host memory of another process.*\nengine libucx /);
  });
});

describe.skipIf(libucp === undefined)('perftest (needs libucp)', { timeout: 60_000 }, () => {
  /** Runs tests in turn, both sides in one process, and returns the rows of their results. */
  const results = (tests: readonly string[], options: readonly string[], env: Readonly<Record<string, string>>) => {
    const file = join(folder, 'batch');
    writeFileSync(file, tests.map((test) => `${test} -t ${test}\n`).join(''));
    const text = output(['perftest', '-l', '-b', file, '-I', '-V', ...options], env);
    return text.split('\n').filter((line) => line.startsWith('Final:'));
  };

  it('runs every test of endpoints, with all data checked', () => {
    const tests = TESTS.filter(({ api }) => api === 'UCP').map(({ name }) => name);
    const rows = results(tests, ['-s', '8', '-n', '20', '-w', '0'], LIBUCX);
    expect(rows).toHaveLength(tests.length);
    for (const row of rows) expect(row).toMatch(/^Final: +20 .*libucp/);
  });

  it('-I prints what carries the messages, as far as libucp discloses it', () => {
    const env = { ...LIBUCX, UCX_PROTO_ENABLE: 'y' };
    const [row] = results(['tag_bw'], ['-s', '1m', '-n', '20', '-w', '0', '-e'], env);
    expect(row).toMatch(new RegExp(`^Final: .* libucp ${libucp!.version} tcp/lo$`));
  });

  it('runs tests of device memory, with all data checked', () => {
    const options = ['-m', 'gaudi', '-s', '100000', '-n', '5', '-w', '0'];
    const tests = ['tag_lat', 'ucp_am_lat', 'stream_lat', 'ucp_put_lat', 'ucp_get'];
    expect(results(tests, options, { ...LIBUCX, UCX_TLS: 'tcp,self,gaudi_cpy' })).toHaveLength(tests.length);
  });

  it('prints a remedy for a test of a transport', () => {
    const { code, err } = run(['perftest', '-l', '-t', 'put_lat', '-x', 'self', '-d', 'memory'], LIBUCX);
    expect([code, err]).toEqual([1, expect.stringMatching(/use UCX_ENGINE=native \(ERR_UNSUPPORTED\)/)]);
  });
});

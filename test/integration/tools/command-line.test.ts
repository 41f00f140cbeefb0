/** The command line as a user runs it: output of `info` and `demo`, and their errors. */

import { spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MAIN, refusal, useCommandLine } from '../../fixtures/tools/command-line.ts';

const { folder, run, output, runHere, outputHere } = useCommandLine();

describe('info', { timeout: 60_000 }, () => {
  it('-v prints the version', async () => {
    expect(await outputHere(['info', '-v'])).toMatch(/^# Library version: \d+\.\d+\.\d+\n# UCX library: .+\n$/);
    expect(output(['--version'])).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  it('-s prints every card with its fields', async () => {
    const text = await outputHere(['info', '-s']);
    expect(text).toMatch(/2 Gaudi cards \(emulated node\)/);
    const cards = text.split(/^# card \d+ \(accel\d+, [\d:.a-f]+\):/m).slice(1);
    expect(cards).toHaveLength(2);
    for (const card of cards) {
      const [lines] = card.split('\n#\n');
      const fields = new Map([...lines!.matchAll(/^#\s+([^:\n]+): (.+)$/gm)].map((match) => [match[1]!, match[2]!]));
      const names = [
        'name',
        'bus id',
        'PCI path',
        'PCI siblings',
        'module id',
        'NUMA node',
        'HBM',
        'SRAM',
        'firmware',
        'status',
        'NIC ports',
      ];
      expect([...fields.keys()].slice(0, names.length)).toEqual(names);
      expect(fields.get('bus id')).toMatch(/^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d$/);
      expect(fields.get('module id')).toMatch(/^\d$/);
      expect(fields.get('HBM')).toMatch(/GiB/);
      expect(fields.get('status')).toBe('operational');
      expect(fields.get('NIC ports')).toMatch(/\d+/);
      for (const value of fields.values()) expect(value.trim()).not.toBe('');
    }
    expect(text).not.toMatch(/undefined|NaN|\[object/);
  });

  it('-d prints memory domains, transports and devices as ucx_info does', async () => {
    const text = await outputHere(['info', '-d'], { UCX_NET_DEVICES: 'lo' });
    for (const line of text.trimEnd().split('\n')) expect(line).toMatch(/^#/);
    expect([...text.matchAll(/^# Memory domain: (\S+)$/gm)].map(([, name]) => name)).toEqual([
      'self',
      'posix',
      'cma',
      'tcp',
      'gaudi_copy',
      'gaudi_ipc',
    ]);
    expect([...text.matchAll(/^#\s+Component: (\S+)$/gm)]).toHaveLength(6);
    const devices = [...text.matchAll(/^#\s+Device: (.+)$/gm)].map(([, name]) => name!);
    expect(devices).toContain('lo');
    const networks = devices.filter((device) => !/^(memory|gaudi\d.*)$/.test(device));
    expect(devices).toEqual([
      ...['memory', 'memory', 'memory'],
      // Other network devices depend on the machine.
      ...networks,
      // Equal devices are one block.
      ...['gaudi0, gaudi1 (2 equal)', 'gaudi0, gaudi1 (2 equal)'],
    ]);
    expect([...text.matchAll(/^#\s+Transport: (\S+)$/gm)].map(([, name]) => name)).toEqual([
      ...['self', 'posix', 'cma'],
      ...networks.map(() => 'tcp'),
      ...['gaudi_cpy', 'gaudi_ipc'],
    ]);
    expect(text).toMatch(/register: .*cost: 600 nsec/);
    expect(text).toMatch(/memory types: .*host \(.*reg.*cache.*\).*gaudi \(.*alloc.*detect.*dmabuf.*\)/);
    for (const name of ['bandwidth', 'latency', 'overhead', 'put_zcopy', 'get_zcopy']) {
      expect(text.match(new RegExp(`^#\\s+${name}: \\S`, 'gm')), name).toHaveLength(devices.length);
    }
    // Copies by the kernel have no short operations.
    for (const name of ['put_short', 'get_short']) {
      expect(text.match(new RegExp(`^#\\s+${name}: \\S`, 'gm')), name).toHaveLength(devices.length - 1);
    }
    expect(text).not.toMatch(/undefined|NaN|\[object/);
  });

  it('-d has the columns and the units of ucx_info', async () => {
    const text = await outputHere(['info', '-d'], { UCX_NET_DEVICES: 'lo' });
    for (const line of [
      /^# {5}Component: self$/,
      /^# {13}register: unlimited, cost: 0 nsec$/,
      /^# {6}Transport: posix$/,
      /^# {9}Device: memory$/,
      /^# {11}Type: loopback$/,
      /^# {2}System device: <unknown>$/,
      /^# {6}capabilities:$/,
      /^# {12}bandwidth: 0\.00\/ppn \+ \d+\.\d\d MB\/sec$/,
      /^# {13}am_short: <= 8K$/,
      /^# {13}am_zcopy: <= \d+K?$/,
    ]) {
      expect(
        text.split('\n').some((each) => line.test(each)),
        String(line),
      ).toBe(true);
    }
  });

  it('-d -t prints one transport, and --json the same as data', async () => {
    const text = await outputHere(['info', '-d', '-t', 'gaudi_cpy']);
    expect(text.match(/Transport: /g)).toHaveLength(1);
    const { devices } = JSON.parse(await outputHere(['info', '-d', '-t', 'gaudi_cpy', '--json'])) as {
      devices: { component: string; devices: { attributes: { resource: { device: string } } }[] }[];
    };
    expect(devices.map(({ component }) => component)).toEqual(['gaudi_copy']);
    expect(devices[0]!.devices.map(({ attributes }) => attributes.resource.device)).toEqual(['gaudi0', 'gaudi1']);
  });

  it('-p -w -e -m print context, worker, endpoint and an allocation', async () => {
    const text = await outputHere(['info', '-u', 'tm', '-p', '-w', '-e', '-m', '64k'], { UCX_TLS: 'self,gaudi' });
    expect(text).toMatch(/^# {6}memory types: host, gaudi$/m);
    expect(text).toMatch(/^# {10}not used: posix.*: excluded by UCX_TLS$/m);
    expect(text).toMatch(/^# {17}address: \d+ bytes$/m);
    expect(text).toMatch(/^# {17}lane\[0\]: {2}0:self\/memory\.0 /m);
    expect(text).toMatch(/^# {2}allocated 64K of host memory at address 0x[0-9a-f]+$/m);
  });

  it('-T prints distances, -M the bandwidth of copies', async () => {
    // Cards, then network devices, then the NUMA node.
    expect(await outputHere(['info', '-T'])).toMatch(/^# card 0 +- +PCI switch +(\S.* +)?0$/m);
    const { system } = JSON.parse(await outputHere(['info', '-T', '--json'])) as {
      readonly system: {
        readonly networks: readonly object[];
        readonly networkDistances: readonly (readonly string[])[];
      };
    };
    expect(system.networkDistances.map((row) => row.length)).toEqual([system.networks.length, system.networks.length]);
    expect(await outputHere(['info', '-M'])).toMatch(/^# +4096 bytes: \d+\.\d{3} MB\/s$/m);
  });

  it.each([
    [['info'], /argument options must include at least one/],
    [['info', '-u', 't'], /argument -u must be given with -p, -w, -e or -m, got "t"/],
    [['info', '-d', '-t', 'bogus'], /argument -t must be one of self, posix, .*, got "bogus"/],
    [['info', '-t', 'tcp'], /argument -t must be given with -d/],
    [['info', '-w'], /argument -u must be given with -p, -w, -e and -m, got nothing/],
    [['info', '-u', 'r', '-m', '100t'], /argument -m must be a size of at most 4g, such as 1m, got "100t"/],
    [['info', '-w', '-u', 'x'], /argument -u must have only the letters a, r, t, s, m, w, e/],
    [['info', '-b'], /-b of ucx_info: .*-v prints/],
    [['info', '-D', 'shm'], /-D of ucx_info: .*UCX_TLS/],
    [['info', '-P', 'intra'], /-P of ucx_info: .*explain --peer/],
  ])('%j is refused with a hint', (args, message) => {
    const { code, out, err } = run(args);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(message);
    expect(err.split('\n')).toHaveLength(3);
  });

  it('-u has the letters that its help lists', async () => {
    const help = (await outputHere(['info', '--help'])).replace(/\s+/g, ' ');
    const [, letters] = /features of the context: (.*?no effect)/.exec(help)!;
    expect([...letters!.matchAll(/\b([a-z])(?= \(| and | of )/g)].map(([letter]) => letter)).toEqual([...'artsmwe']);
    expect(await outputHere(['info', '-w', '-u', 'artsmwe'])).toContain('UCP worker');
  });

  it('-d without cards prints the reason', async () => {
    const text = await outputHere(['info', '-d'], { UCX_GAUDI_DRIVER: 'kernel' });
    expect(text).toMatch(/Memory domain: gaudi_copy\n#\s+< no supported devices found: .*no cards/);
  });

  /** The lines of a configuration without comments. */
  const assignments = (text: string): string[] =>
    text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  const GIVEN = { UCX_TLS: '^self', UCX_GAUDI_COPY_LATENCY: '3us', UCX_LOG_LEVEL: 'error,cma:warn' };

  it.each([['-c'], ['-f', '-a']])('%s %s prints a configuration that reads back as one', async (...args) => {
    const first = await outputHere(['info', ...args], GIVEN);
    for (const line of assignments(first)) expect(line).toMatch(/^UCX_[A-Z0-9_]+=/);
    for (const [name, value] of Object.entries(GIVEN)) expect(assignments(first)).toContain(`${name}=${value}`);
    const directory = mkdtempSync(join(folder, 'conf-'));
    writeFileSync(join(directory, 'ucx.conf'), first);
    expect(assignments(await outputHere(['info', ...args], { UCX_CONFIG_DIR: directory }))).toEqual(assignments(first));
    const env = Object.fromEntries(assignments(first).map((line) => line.split(/=(.*)/s).slice(0, 2)));
    expect(assignments(await outputHere(['info', ...args], env))).toEqual(assignments(first));
  });

  it('-c prints the lines alone, -f their meaning and source as well', async () => {
    const plain = await outputHere(['info', '-c'], GIVEN);
    expect(plain.trimEnd().split('\n')).toEqual(assignments(plain));
    const decorated = await outputHere(['info', '-f'], {
      ...GIVEN,
      UCT_GAUDI_COPY_ENABLE_DMABUF: 'n',
      UCX_LOG_LEVEL: 'error',
    });
    for (const line of plain.trimEnd().split('\n')) {
      const [name] = line.split('=');
      const block = decorated.split('\n\n').find((part) => part.includes(`\n${name}=`));
      expect(block, name).toMatch(
        /^#\n# .+\.?\n#\n# syntax: {4}.+\n# default:.*\n# source: {4}.+\n(# inherits: .+\n)?(# alias: {5}.+\n)?#\nUCX_/,
      );
    }
    expect(decorated).toMatch(/# source: {4}environment\n#\nUCX_TLS=\^self\n/);
    expect(decorated).toContain(
      '# source:    environment (UCT_GAUDI_COPY_ENABLE_DMABUF)\n#\nUCX_GAUDI_COPY_DMABUF=n\n',
    );
    expect(decorated).toMatch(/# source: {4}default\n#\nUCX_GAUDI_COPY_OVERHEAD=/);
  });

  it('-a prints deprecated names', async () => {
    const line = '# UCT_GAUDI_COPY_ENABLE_DMABUF (sets UCX_GAUDI_COPY_DMABUF)\n';
    expect(await outputHere(['info', '-a'])).toContain(line);
    expect(await outputHere(['info', '-c'])).not.toContain(line);
  });

  it('-C comments defaults out, -F filters by name', async () => {
    const lines = await outputHere(['info', '-c', '-C', '-F', 'X_TLS'], GIVEN);
    expect(lines).toBe('UCX_TLS=^self\n');
    expect(await outputHere(['info', '-c', '-C', '-F', 'PROGRESS_SPIN'], GIVEN)).toMatch(/^# UCX_PROGRESS_SPIN=.+\n$/);
    expect(assignments(await outputHere(['info', '-c', '-C'], GIVEN)).sort()).toEqual(
      [
        ...Object.entries(GIVEN).map(([name, value]) => `${name}=${value}`),
        'UCX_GAUDI_DRIVER=emulator',
        'UCX_GAUDI_EMULATOR_CARDS=2',
      ].sort(),
    );
  });

  it('-d prints what the configuration excludes', async () => {
    const text = await outputHere(['info', '-d'], {
      UCX_TLS: '^cma',
      UCX_ACC_DEVICES: 'gaudi1',
      UCX_NET_DEVICES: 'lo',
    });
    const parts = text.split(/^#\s+Transport: /m).slice(1);
    const excluded = parts.map((part) => {
      const [, device] = /Device: (\S+)/.exec(part)!;
      const reason = /Not used: (.+)/.exec(part)?.[1];
      return `${part.split('\n', 1)[0]}/${device}${reason === undefined ? '' : ` ${reason}`}`;
    });
    const isOtherNetwork = (line: string): boolean => line.startsWith('tcp/') && !line.startsWith('tcp/lo');
    expect(excluded.filter((line) => !isOtherNetwork(line))).toEqual([
      'self/memory',
      'posix/memory',
      'cma/memory excluded by UCX_TLS',
      'tcp/lo',
      'gaudi_cpy/gaudi0 excluded by UCX_ACC_DEVICES',
      'gaudi_cpy/gaudi1',
      'gaudi_ipc/gaudi0 excluded by UCX_ACC_DEVICES',
      'gaudi_ipc/gaudi1',
    ]);
  });

  it('prints all requested parts', async () => {
    const text = await outputHere(['info', '-v', '-d', '-c', '-s']);
    for (const part of [/Library version/, /Gaudi cards/, /Memory domain: self/, /UCX_TLS=all/]) {
      expect(text).toMatch(part);
    }
  });

  it('warns about an unused variable, with the nearest name, and continues', async () => {
    const { code, out, err } = await runHere(['info', '-v'], { UCX_TLSS: 'self' });
    expect({ code, out }).toEqual({ code: 0, out: expect.stringContaining('Library version') as string });
    expect(err).toMatch(
      / ucp UCX {2}WARN {2}unused environment variable: UCX_TLSS \(maybe: UCX_TLS\?\) \(set UCX_WARN_UNUSED_ENV_VARS=n to suppress this warning\)\n$/,
    );
  });

  it('logs into UCX_LOG_FILE', async () => {
    const file = join(folder, 'log-%p-%e');
    await outputHere(['info', '-d'], { UCX_LOG_FILE: file, UCX_LOG_LEVEL: 'error,gaudi*:debug' });
    const [name] = readdirSync(folder).filter((entry) => /^log-\d+-node$/.test(entry));
    const lines = readFileSync(join(folder, name!), 'utf8').trimEnd().split('\n');
    for (const line of lines) expect(line).toMatch(/^\[\d+\.\d{6}\] \[[^:]+:\d+:0\] +gaudi\S+ UCX {2}DEBUG \S/);
    const { code, err } = await runHere(['info', '-v'], { UCX_LOG_FILE: join(folder, 'missing', 'log') });
    expect({ code, err }).toEqual({
      code: 1,
      err: expect.stringMatching(/UCX_LOG_FILE.*missing.*ERR_LOG_FILE/) as string,
    });
  });

  it('names a bad variable, and exits with 1', async () => {
    const { code, out, err } = await runHere(['info', '-d'], { UCX_GAUDI_COPY_BW: 'fast' });
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toMatch(/UCX_GAUDI_COPY_BW.*fast.*ERR_CONFIG_VALUE/);
    expect(err).not.toMatch(/\n\s+at /);
  });

  it('names a bad mapping table', async () => {
    const { out, err } = await runHere(['info', '-d'], { GAUDI_MAPPING_TABLE: '[{"index":0}]' });
    expect(out + err).toMatch(/GAUDI_MAPPING_TABLE entry 0/);
    expect(err).not.toMatch(/\n\s+at /);
  });
});

describe('demo', { timeout: 60_000 }, () => {
  it.each([1, 1000, 100_003, 5 * 2 ** 20 + 1])('sends a file of %s bytes and prints each hop', (byteLength) => {
    const file = join(folder, `file-${byteLength}`);
    const bytes = randomBytes(byteLength);
    writeFileSync(file, bytes);
    const text = output(['demo', file], { UCX_GAUDI_EMULATOR_CARDS: '1' });
    const digest = createHash('sha256').update(bytes).digest('hex');
    expect(text).toContain(`sha-256 before ${digest}`);
    expect(text).toContain(`sha-256 after  ${digest}`);
    expect(text).not.toContain('DIFFERENT');
    for (const hop of ['host -> HBM', 'HBM -> HBM', 'HBM -> host']) {
      const row = text.split('\n').find((line) => line.startsWith(`${hop} `));
      expect(row, hop).toMatch(/[\d.]+ (B|KiB|MiB) +[\d.]+ (ns|us|ms|s) +[\d.]+ +[\d.]+ +gaudi_cpy\/gaudi0/);
      expect(row).toMatch(/(put|get)\/(short|zcopy)$/);
      expect(text).toMatch(new RegExp(`^why ${hop}: \\S+`, 'm'));
    }
    expect(text).toMatch(/^memcpy .*reference/m);
    expect(text).toMatch(/^emulated: /m);
    expect(text).toMatch(/^one card: /m);
    expect(text).not.toMatch(/undefined|NaN|Infinity|\[object/);
  });

  it.each<readonly [string, () => string, RegExp]>([
    ['a missing file', () => join(folder, 'missing'), /missing/],
    ['a folder', () => folder, /folder|directory|EISDIR/i],
    [
      'an empty file',
      () => {
        const file = join(folder, 'empty');
        writeFileSync(file, '');
        return file;
      },
      /empty/,
    ],
  ])('%s is an error of one line, exit code 1', (_what, make, message) => {
    const { code, out, err } = run(['demo', make()]);
    expect(code).toBe(1);
    expect(out).toBe('');
    expect(err).toMatch(message);
    expect(err.trimEnd().split('\n')).toHaveLength(1);
    expect(err).toMatch(/^gaudi-ucx: /);
  });

  it('without a usable card prints the reason, exit code 1', () => {
    const file = join(folder, 'small');
    writeFileSync(file, 'small');
    const { code, err } = run(['demo', file], { UCX_GAUDI_DRIVER: 'kernel' });
    expect(code).toBe(1);
    expect(err).toMatch(/gaudi memory.*no cards/);
    expect(err).not.toMatch(/\n\s+at /);
  });
});

describe('demo --json', { timeout: 60_000 }, () => {
  it('prints both parts as data', () => {
    const file = join(folder, 'json-file');
    writeFileSync(file, randomBytes(50_000));
    const { oneCard, exchange } = JSON.parse(output(['demo', file, '--json'])) as {
      oneCard: { emulated: boolean; byteLength: number; before: string; after: string; hops: { name: string }[] };
      exchange: { cards: number[]; rounds: { round: string; different: number[] }[] };
    };
    expect(oneCard).toMatchObject({ emulated: true, byteLength: 50_000, after: oneCard.before });
    expect(oneCard.hops.map(({ name }) => name)).toEqual(['host -> HBM', 'HBM -> HBM', 'HBM -> host', 'memcpy']);
    expect(exchange.cards).toEqual([0, 1]);
    expect(exchange.rounds.map(({ round, different }) => [round, different])).toEqual([
      ['put', []],
      ['get', []],
      ['tag', []],
    ]);
  });
});

describe('the command', { timeout: 60_000 }, () => {
  it.each([
    [['node'], 'gaudi-ucx node', 'no command given'],
    [['node', 'fly'], 'gaudi-ucx node', "unknown command 'fly'"],
    [['nothing'], 'gaudi-ucx', "unknown command 'nothing'"],
    [['info', '--nothing'], 'gaudi-ucx info', "unknown option '--nothing'"],
    [['demo', 'one', 'two'], 'gaudi-ucx demo', 'too many arguments for .*'],
    [['demo', '--cards', '1'], 'gaudi-ucx demo', 'argument --cards must be .* \\(ERR_INVALID_PARAM\\)'],
    [['node', 'fault', '0', 'nothing'], 'gaudi-ucx node fault', 'argument kind must be .* \\(ERR_INVALID_PARAM\\)'],
    [['explain', '--op', 'steal'], 'gaudi-ucx explain', 'argument --op must be .* \\(ERR_INVALID_PARAM\\)'],
    [['top', '--interval', 'soon'], 'gaudi-ucx top', 'argument --interval must be .* \\(ERR_INVALID_PARAM\\)'],
    [['perftest', '-l', '-t', 'nothing'], 'gaudi-ucx perftest', 'argument -t must be .* \\(ERR_INVALID_PARAM\\)'],
    [
      ['perftest', '-l', '-t', 'tag_lat', '-c', '5000'],
      'gaudi-ucx perftest',
      'argument -c must .* \\(ERR_INVALID_PARAM\\)',
    ],
    [
      ['perftest', '-l', '-t', 'tag_lat', '-c', '999'],
      'gaudi-ucx perftest',
      'argument -c must .* \\(ERR_INVALID_PARAM\\)',
    ],
    [['perftest', '-t', 'nothing'], 'gaudi-ucx perftest', 'argument -t must be .* \\(ERR_INVALID_PARAM\\)'],
    [['perftest', '-l', '-t', 'tag_lat', '-A', 'async'], 'gaudi-ucx perftest', '-A async.* \\(ERR_UNSUPPORTED\\)'],
  ])('%j is refused with a line of hint and the error behind it', async (args, command, error) => {
    const { code, out, err } = await refusal(args);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(new RegExp(`^Try '${command} --help'\\.\\ngaudi-ucx: ${error}\\n$`));
  });

  it.each([
    [[], 'gaudi-ucx', 'no command given'],
    [['node', 'up', '--cards', '99'], 'gaudi-ucx node up', '.*\\(ERR_INVALID_PARAM\\)'],
  ])('%j ends the process with exit code 2', (args, command, error) => {
    const { code, out, err } = run(args, { XDG_RUNTIME_DIR: folder });
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(new RegExp(`^Try '${command} --help'\\.\\ngaudi-ucx: ${error}\\n$`));
  });

  it('fails with one line on a platform that is not supported', () => {
    const pretend = 'data:text/javascript,Object.defineProperty(process, "arch", { value: "arm64" })';
    const args = ['--import', pretend, MAIN, 'info', '-s'];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    expect({ status, stdout, stderr }).toEqual({
      status: 1,
      stdout: '',
      stderr: expect.stringMatching(/^gaudi-ucx: [^\n]* this is linux on arm64 \(ERR_PLATFORM\)\n$/),
    });
  });

  it('fails with one line when its output cannot be written', () => {
    const full = openSync('/dev/full', 'w');
    const { status, stderr } = spawnSync(process.execPath, [MAIN, 'info', '-c'], {
      stdio: ['ignore', full, 'pipe'],
      encoding: 'utf8',
    });
    closeSync(full);
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: expect.stringMatching(/^gaudi-ucx: standard output: ENOSPC[^\n]*\n$/),
    });
  });
});

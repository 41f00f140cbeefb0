/** What users type who know ucx_perftest, ucx_info, hl-smi and promtool: it works, or the error names the option and what there is. */

import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const { run, runHere, outputHere } = useCommandLine();
const PROMTOOL = spawnSync('promtool', ['--version']).error === undefined;

describe('a wrong value', () => {
  it.each([
    [
      ['--hbm', '5GiB'],
      'argument --hbm must be a multiple of the DRAM page of 768M, from 3840M to 1T, such as 4608M or 5376M, got "5GiB"',
    ],
    [
      ['--asic', 'gaudi', '--hbm', '1k'],
      'argument --hbm must be a multiple of the DRAM page of 2M, from 520M to 1T, such as 520M, got "1k"',
    ],
    [['--hbm', 'large'], 'argument --hbm must be a size such as 96GiB, or min, got "large"'],
    [['--dma-threads', 'x'], 'argument --dma-threads must be an integer from 0 to 8, got "x"'],
    [['--timeout-locked', '0'], 'argument --timeout-locked must be an integer from 1 to 86400, got "0"'],
    [['--links', '^0-99'], 'argument --links must be pairs of two different cards from 0 to 1, got "^0-99"'],
  ])('of node up %j names the option', (args, message) => {
    const { code, err } = run(['node', 'up', ...args]);
    expect(code).toBe(2);
    expect(err).toContain(`gaudi-ucx: ${message} (ERR_INVALID_PARAM)`);
  });

  it('of a variable names it', async () => {
    const { err } = await runHere(['info', '-d'], { UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_HBM: '5g' });
    expect(err).toMatch(/UCX_GAUDI_EMULATOR_HBM must be a multiple of the DRAM page of 768M/);
  });
});

describe('perftest', () => {
  it.each([
    ['127.0.0.1:5000', '127.0.0.1 -p 5000'],
    ['[::1]:5000', '::1 -p 5000'],
    ['node-7:5000', 'node-7 -p 5000'],
  ])('of %s asks for -p', async (host, instead) => {
    const { code, err } = await runHere(['perftest', host, '-t', 'tag_lat']);
    expect(code).toBe(2);
    expect(err).toContain(`argument host must not contain the port: use ${instead}, got "${host}"`);
  });

  it('says in its help that ucx_perftest is not a peer', async () => {
    expect((await outputHere(['perftest', '--help'])).replaceAll(/\s+/g, ' ')).toContain(
      'both sides must be gaudi-ucx perftest, not ucx_perftest (the engine libucx can communicate with other programs that use libucp)',
    );
  });
});

describe('info -d -t', () => {
  it.each(['rc', 'rc_verbs', 'ib'])('%s without RDMA devices lists the reason', async (name) => {
    const env = { UCX_GAUDI_DRIVER: 'emulator', UCX_IB_DRIVER: 'emulator' };
    expect(await outputHere(['info', '-d', '-t', name], env)).toMatch(
      /^# Memory domain: ib\n# {3}< .*set UCX_GAUDI_EMULATOR_NICS=1 for an emulated one.*>$/m,
    );
    expect(await outputHere(['info', '-d'], env)).not.toContain('Memory domain: ib');
    expect(await outputHere(['info', '-d', '-t', name], { ...env, UCX_GAUDI_EMULATOR_NICS: '1' })).toMatch(
      /^# +Transport: rc$/m,
    );
  });
});

describe('smi', () => {
  it.each([
    [['-d'], /argument -d must be one of PRODUCT, BUS, MEMORY, /],
    [['-q', '-d'], /argument -d must be one of PRODUCT, BUS, MEMORY, /],
    [['-r'], /-r: smi does not reset cards; for a card of a node server use gaudi-ucx node fault CARD hard-reset/],
    [['-r', '0'], /-r: smi does not reset cards/],
    [['-q', '-x'], /-x: smi does not print XML; use --json for all values/],
  ])('%j names what there is', async (args, message) => {
    const { code, out, err } = await runHere(['smi', ...args]);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(message);
  });

  it('-L lists the cards', async () => {
    expect((await outputHere(['smi', '-L'])).match(/^AIP \d: HL225 \(bus id: /gm)).toHaveLength(2);
  });
});

describe('metrics --once', () => {
  it.skipIf(!PROMTOOL)('is the text that promtool reads (needs promtool)', async () => {
    const text = await outputHere(['metrics', '--once']);
    expect(text).toContain('# TYPE ucx_operations_total counter\n');
    expect(text).not.toContain('# EOF');
    const { status, stderr } = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  });

  it('--openmetrics is the other format', async () => {
    expect(await outputHere(['metrics', '--once', '--openmetrics'])).toMatch(
      /^# TYPE ucx_operations counter$[\s\S]*^# EOF\n$/m,
    );
    expect((await runHere(['metrics', '--openmetrics'])).err).toContain('--openmetrics must be used with --once');
  });
});

/** The files of deploy/ and their page: each is checked by the program that reads it, and names only what exists. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DockerfileParser } from 'dockerfile-ast';
import { afterAll, describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { requires } from '../../fixtures/requires.ts';
import { ROOT } from '../../fixtures/tools/built.ts';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const FOLDER = join(ROOT, 'deploy');
const FILES = readdirSync(FOLDER);
const INSTRUCTIONS = ['FROM', 'RUN', 'WORKDIR', 'COPY', 'USER', 'ENV', 'CMD'];
const scratch = mkdtempSync(join(tmpdir(), 'gaudi-ucx-deploy-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const cli = useCommandLine();
const textOf = (file: string): string => readFileSync(join(FOLDER, file), 'utf8');

/** Runs a checker; skips the test if the machine does not have it. Returns its exit code and all that it says. */
function check(program: string, args: readonly string[]): { readonly status: number | null; readonly said: string } {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: 'utf8', cwd: FOLDER });
  requires(error === undefined, program);
  return { status, said: `${stdout}${stderr}` };
}

describe('the page', () => {
  const page = readFileSync(join(ROOT, 'docs/guide/deploy.md'), 'utf8');

  it('shows every file', () => {
    const named = [...page.matchAll(/\(\.\.\/\.\.\/deploy\/([\w.-]+)\)/g)].map(([, name]) => name!);
    expect([...new Set(named)].sort()).toEqual([...FILES].sort());
  });

  it('explains every alert', () => {
    const rows = [...page.matchAll(/^\| ((?:Gaudi|Ucx)\w+) \|/gm)].map(([, name]) => name);
    expect(rows).toEqual(rules().map(({ alert }) => alert));
  });
});

describe('units of systemd', () => {
  it('that belong together have the same user, folder of sockets and driver', () => {
    const settings = (unit: string): readonly string[] =>
      textOf(unit).match(/^(?:User|WorkingDirectory|SupplementaryGroups|Environment=(?:XDG|UCX_GAUDI)\w+)=.*/gm) ?? [];
    expect(settings('gaudi-ucx-metrics.service')).toEqual(settings('kv-mover.service'));
  });

  const units = FILES.filter((file) => file.endsWith('.service'));

  it.each(units)('%s is one', (unit) => {
    expect(check('systemd-analyze', ['verify', `./${unit}`])).toEqual({ status: 0, said: '' });
  });

  it('is not said of others', () => {
    const broken = join(scratch, 'broken.service');
    writeFileSync(broken, textOf(units[0]!).replace(/^Restart=.*/m, 'Restart=now'));
    expect(check('systemd-analyze', ['verify', broken]).said).toMatch(/Failed to parse service restart specifier/);
  });
});

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly annotations: { readonly summary: string };
}

function rules(): readonly Rule[] {
  return (parse(textOf('alerts.yml')) as { groups: { rules: Rule[] }[] }).groups.flatMap((group) => group.rules);
}

describe('Prometheus', () => {
  it('takes the configuration and its rules', () => {
    expect(check('promtool', ['check', 'config', 'prometheus.yml'])).toMatchObject({ status: 0 });
    expect(check('promtool', ['check', 'rules', 'alerts.yml'])).toMatchObject({ status: 0 });
  });

  const critical = { severity: 'critical' };
  const cases: readonly [string, Readonly<Record<string, string>>, Readonly<Record<string, string>> | undefined][] = [
    ['GaudiCardDown', { 'habanalabs_device_up{card="0"}': '0x60' }, { card: '0', ...critical }],
    // From one state to another, each for 30 s.
    [
      'GaudiCardDown',
      {
        'habanalabs_device_up{card="0",state="in reset"}': '0 0 stale _ '.repeat(15),
        'habanalabs_device_up{card="0",state="malfunction"}': `_ _ ${'0 0 stale _ '.repeat(15)}`,
      },
      { card: '0', ...critical },
    ],
    [
      'GaudiExporterGone',
      { 'up{job="gaudi-ucx",instance="b"}': '0x60' },
      { job: 'gaudi-ucx', instance: 'b', ...critical },
    ],
    [
      'GaudiNodeGone',
      {
        'up{job="gaudi-ucx",instance="a"}': '1x60',
        'habanalabs_device_up{instance="a",card="0"}': '1x60',
        'up{job="gaudi-ucx",instance="b"}': '1x60',
      },
      { job: 'gaudi-ucx', instance: 'b', ...critical },
    ],
    ['GaudiCardReset', { 'habanalabs_hard_resets_total{card="2"}': '0x30 1x30' }, { card: '2' }],
    ['GaudiCardReset', { 'habanalabs_hard_resets_total{card="2"}': '1x60' }, undefined],
    ['GaudiPortDown', { 'habanalabs_nic_port_status{card="1",port="3"}': '0x60' }, { card: '1', port: '3' }],
    [
      'UcxRequestStuck',
      { 'ucx_requests_oldest_seconds{pid="7",reason="peer"}': '61x60' },
      { pid: '7', reason: 'peer' },
    ],
    ['UcxRequestStuck', { 'ucx_requests_oldest_seconds{pid="7",reason="message"}': '61x60' }, undefined],
    [
      'UcxProcessesUnseen',
      { 'ucx_socket_folder_readable{folder="/run/x/gaudi-ucx"}': '0x60' },
      { folder: '/run/x/gaudi-ucx' },
    ],
    ['UcxProcessSilent', { 'ucx_process_answers{pid="7"}': '0x60' }, { pid: '7' }],
    // The program makes a new context after each failure: the series of a context never rises.
    [
      'UcxOperationsFail',
      {
        'ucx_operation_failures_total{pid="7",context="1"}': '1x3 stale',
        'ucx_operation_failures_total{pid="7",context="2"}': '_x4 1x3 stale',
        'ucx_process_operation_failures_total{pid="7"}':
          '1x3 2x3 3x3 4x3 5x3 6x3 7x3 8x3 9x3 10x3 11x3 12x3 13x3 14x3 15x3',
      },
      { pid: '7' },
    ],
    ['UcxOperationsFail', { 'ucx_process_operation_failures_total{pid="7"}': '3x60' }, undefined],
  ];
  it.each(cases)('has %s, which %j fires or not: %j', (alertname, series, found) => {
    const [rule] = rules().filter(({ alert }) => alert === alertname);
    const exp_labels = { severity: 'warning', ...found };
    const summary = Object.entries({ instance: '', ...found }).reduce(
      (text, [name, label]) => text.replace(`{{ $labels.${name} }}`, label),
      rule!.annotations.summary,
    );
    const exp_alerts = found === undefined ? [] : [{ exp_labels, exp_annotations: { summary } }];
    const test = {
      rule_files: [join(FOLDER, 'alerts.yml')],
      tests: [
        {
          interval: '15s',
          input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
          alert_rule_test: [{ alertname, eval_time: '14m', exp_alerts }],
        },
      ],
    };
    const file = join(scratch, `${alertname}.json`);
    writeFileSync(file, JSON.stringify(test));
    expect(check('promtool', ['test', 'rules', file])).toMatchObject({ status: 0 });
  });

  it('finds every metric of the rules in what gaudi-ucx metrics prints', async () => {
    const printed = await cli.outputHere(['metrics', '--once']);
    for (const { expr } of rules()) {
      for (const [name] of expr.matchAll(/\b(?:ucx|habanalabs)_\w+/g)) {
        expect(printed).toContain(`# TYPE ${name} `);
      }
    }
  });
});

describe('containers', () => {
  it('have a Dockerfile whose instructions are known, in order', () => {
    const dockerfile = DockerfileParser.parse(textOf('Dockerfile'));
    const used = dockerfile.getInstructions().map((instruction) => instruction.getKeyword());
    expect(used[0]).toBe('FROM');
    expect(used.at(-1)).toBe('CMD');
    for (const keyword of used) expect(INSTRUCTIONS).toContain(keyword);
  });

  it('have folders that the image makes: its base has none of them', () => {
    const made: string[] = [];
    const missing: string[] = [];
    for (const instruction of DockerfileParser.parse(textOf('Dockerfile')).getInstructions()) {
      const text = instruction.getArgumentsContent() ?? '';
      if (instruction.getKeyword() === 'WORKDIR') made.push(text);
      if (instruction.getKeyword() !== 'RUN') continue;
      for (const command of text.split('&&')) {
        const words = command.trim().split(/\s+/);
        const paths = words.filter((word) => word.startsWith('/'));
        if (words[0] === 'mkdir') made.push(...paths);
        if (words[0] === 'chown') missing.push(...paths.filter((path) => !made.includes(path)));
      }
    }
    expect(made).toContain('/run/user');
    expect(missing).toEqual([]);
  });

  it('have manifests of Kubernetes', () => {
    const documents = parseAllDocuments(textOf('kubernetes.yaml'));
    expect(documents.flatMap(({ errors }) => errors)).toEqual([]);
    expect(documents.map((document) => (document.toJS() as { kind: string }).kind)).toEqual(['Pod', 'DaemonSet']);
  });
});

describe('commands of this package', () => {
  const lines = FILES.flatMap((file) => textOf(file).match(/^\w.*npx[ ,]+gaudi-ucx.*|^ +command:.*$/gm) ?? []);
  const commands = lines.map((line) =>
    line
      .replace(/^.*gaudi-ucx/, '')
      .replace(/[\],']/g, ' ')
      .trim()
      .split(/\s+/),
  );

  it('are in the units and in the manifest', () => {
    expect(commands.map(([name]) => name).sort()).toEqual(['doctor', 'metrics', 'node', 'node', 'node']);
  });

  it.each(commands.map((words) => [words.join(' '), words] as const))(
    '%s exists with its options',
    async (_, words) => {
      const options = words.filter((word) => word.startsWith('--'));
      const path = options.length === 0 ? words : words.slice(0, words.indexOf(options[0]!));
      const help = await cli.outputHere([...path, '--help']);
      for (const option of options) expect(help).toContain(`  ${option}`);
    },
  );
});

/** Completion in real shells, and the manual pages as man prints them; a shell that is not installed is skipped. */

import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { ROOT } from '../../fixtures/tools/built.ts';
import { refusal, useCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useCommandLine();
const MAN = join(ROOT, 'dist/man');
const SHELLS = ['bash', 'zsh', 'fish'] as const;

const isInstalled = (program: string): boolean =>
  spawnSync(program, ['--version'], { stdio: 'ignore', env: { ...process.env } }).error === undefined;

/** Runs a program, which must succeed and be silent on standard error. */
function output(program: string, args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(program, args, {
    encoding: 'utf8',
    env: { ...process.env, HOME: cli.folder, MANWIDTH: '100' },
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return stdout;
}

const fileOf = (shell: string): string => join(cli.folder, `completion.${shell}`);

beforeAll(async () => {
  for (const shell of SHELLS) writeFileSync(fileOf(shell), await cli.outputHere(['completion', shell]));
});

describe('completion', () => {
  /** What bash offers for a line, whose last word is being written. */
  function offered(line: string): string[] {
    const words = line.split(' ');
    const script = `source ${fileOf('bash')}
COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}
_gaudi_ucx && printf '%s\\n' "\${COMPREPLY[@]}"`;
    return output('bash', ['--norc', '-euc', script])
      .split('\n')
      .filter((word) => word !== '');
  }

  it('of bash offers commands, subcommands, options and values', () => {
    expect(offered('gaudi-ucx per')).toEqual(['perftest']);
    expect(offered('gaudi-ucx node ')).toEqual(expect.arrayContaining(['up', 'status', 'down', 'fault']));
    expect(offered('gaudi-ucx node up --ca')).toEqual(['--cards']);
    expect(offered('gaudi-ucx perftest --pa')).toEqual(['--pattern']);
    expect(offered('gaudi-ucx perftest --pattern one')).toEqual(['one-to-many']);
    expect(offered('gaudi-ucx perftest -l -t tag_')).toEqual(['tag_lat', 'tag_bw', 'tag_sync_lat', 'tag_sync_bw']);
    expect(offered('gaudi-ucx completion z')).toEqual(['zsh']);
    // Options of other commands are not offered.
    expect(offered('gaudi-ucx top --cards')).toEqual([]);
    // File names.
    expect(offered(`gaudi-ucx profile ${cli.folder}/completion.b`)).toEqual([fileOf('bash')]);
    expect(offered(`gaudi-ucx perftest -b ${cli.folder}/completion.z`)).toEqual([fileOf('zsh')]);
  });

  it.skipIf(!isInstalled('zsh'))('of zsh is a valid script with the same words (needs zsh)', () => {
    output('zsh', ['-f', '-n', fileOf('zsh')]);
    const script = `autoload -Uz compinit; compinit -D; source ${fileOf('zsh')}; print $_comps[gaudi-ucx]; whence -w _gaudi_ucx_node_up`;
    expect(output('zsh', ['-f', '-c', script])).toBe('_gaudi_ucx\n_gaudi_ucx_node_up: function\n');
    expect(readFileSync(fileOf('zsh'), 'utf8')).toContain("(pairwise one-to-many many-to-one all-to-all)'");
  });

  it.skipIf(!isInstalled('fish'))('of fish offers the same (needs fish)', () => {
    const ask = (line: string): string[] =>
      output('fish', ['--no-config', '-c', `source ${fileOf('fish')}; complete -C '${line}'`])
        .split('\n')
        .map((each) => each.split('\t')[0]!)
        .filter((word) => word !== '');
    expect(ask('gaudi-ucx per')).toEqual(['perftest']);
    expect(ask('gaudi-ucx node u')).toContain('up');
    expect(ask('gaudi-ucx node up --ca')).toEqual(['--cards']);
    expect(ask('gaudi-ucx perftest --pattern one')).toEqual(['one-to-many']);
  });

  it('refuses other shells', async () => {
    const { code, err } = await refusal(['completion', 'tcsh']);
    expect(code).toBe(2);
    expect(err).toContain('Allowed choices are bash, zsh, fish');
  });
});

describe('manual pages', () => {
  const files = readdirSync(MAN);

  it('are those that the package names: one for each command', () => {
    const { man } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { readonly man: readonly string[] };
    expect(man).toEqual(files.map((file) => `dist/man/${file}`).sort());
    const commands = [...cli.output(['--help']).matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name!);
    const pages = commands.filter((name) => name !== 'help').map((name) => `gaudi-ucx-${name}.1`);
    expect(files).toEqual(['gaudi-ucx.1', ...pages].sort());
  });

  it.skipIf(!isInstalled('man'))('have every option, and no warning of the formatter (needs man)', () => {
    const text = output('man', ['--warnings', '-l', join(MAN, 'gaudi-ucx-perftest.1')]);
    for (const words of ['-t <test>', '--kv <cache>', 'EXIT STATUS', 'SEE ALSO', '[options] [host]']) {
      expect(text).toContain(words);
    }
    for (const file of files) output('man', ['--warnings', '-l', join(MAN, file)]);
  });

  it.skipIf(spawnSync('mandoc').error !== undefined)('pass mandoc -Tlint (needs mandoc)', () => {
    for (const file of files) {
      const { stdout } = spawnSync('mandoc', ['-Tlint', '-W', 'warning', join(MAN, file)], { encoding: 'utf8' });
      // They have no date, so that a build can be repeated.
      expect(stdout.split('\n').filter((line) => line !== '' && !line.includes('missing date'))).toEqual([]);
    }
  });
});

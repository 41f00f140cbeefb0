/** `info -u -p -w -e`, `-t` and `-M`: what ucx_info prints, in its layout and its units, over both engines. */

import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const { outputHere } = useCommandLine();
const UCX_INFO = spawnSync('ucx_info', ['-v'], { encoding: 'utf8' });
const PARTS = ['-u', 'trm', '-p', '-w', '-e'];

/** Kinds of lines: names, numbers and the padding before a colon vary. */
function shapesOf(text: string): Set<string> {
  const lines = text
    .split('\n')
    .filter((line) => line.startsWith('#'))
    .map((line) =>
      line
        .trimEnd()
        .replace(/'[^']+'/, "'<name>'")
        .replace(/(-- |component \d+ +(?!:)|: {2})[a-z]\S*$/, '$1<name>')
        .replace(/(component \d+ +)[a-z]\S*$/, '$1<name>')
        .replace(/\d+(\.\d+)?/g, '<n>'),
    );
  return new Set(lines);
}

describe('info -p -w -e', () => {
  it.skipIf(UCX_INFO.error !== undefined)(
    'has the lines of ucx_info for a context and a worker (needs ucx_info)',
    async () => {
      const env = { ...process.env, UCX_TLS: 'self,posix,cma' };
      const theirs = spawnSync('ucx_info', ['-u', 'ra', '-p', '-w'], { encoding: 'utf8', env, timeout: 30_000 });
      const ours = await outputHere(['info', '-u', 'ra', '-p', '-w'], { UCX_TLS: 'self,posix' });
      const wanted = [...shapesOf(theirs.stdout)].filter((shape) => !shape.includes('atomics:'));
      expect(wanted.filter((shape) => !shapesOf(ours).has(shape))).toEqual([]);
    },
  );

  it('names components, memory domains, resources, the length of the address, and what they cost', async () => {
    const text = await outputHere(['info', ...PARTS], { UCX_TLS: 'self,gaudi_cpy' });
    for (const line of [
      /^# UCP context$/m,
      /^# +component 1 {2}: {2}gaudi_copy$/m,
      /^# +md 1 {2}: {2}component 1 {2}gaudi_copy$/m,
      /^# +resource 2 {2}: {2}md 1 {2}dev 2 {2}flags -- gaudi_cpy\/gaudi1$/m,
      /^# UCP worker '\S+:\d+'$/m,
      /^# +address: \d+ bytes$/m,
      /^# +atomics: 0:self\/memory$/m,
      /^# memory: \d+\.\d\dMB, file descriptors: \d+$/m,
      /^# create time: \d+\.\d{3} ms$/m,
    ]) {
      expect(text).toMatch(line);
    }
  });

  it('gives the roles of the lanes, and the sizes of the protocols', async () => {
    const env = { UCX_TLS: 'self,gaudi_cpy', UCX_RNDV_THRESH: '1000' };
    const text = await outputHere(['info', ...PARTS], env);
    expect(text).toMatch(
      /^# +lane\[0\]: {2}0:self\/memory\.0 md\[0\] +-> md\[0\]\/self\/sysdev\[255\] seg 8192 am rma rma_bw amo$/m,
    );
    expect(text).toMatch(
      /^# +lane\[2\]: {2}2:gaudi_cpy\/gaudi1\.0 md\[1\] +-> md\[1\]\/gaudi_copy\/sysdev\[1\] rma rma_bw$/m,
    );
    expect(text).toMatch(/tagged message by ucp_tag_send\* from host memory.*\n.*\n# \| +1\.\.999 \| eager short/);
    expect(text).toMatch(/stream by ucp_stream_send\* from host memory/);
  });

  it('has the data as JSON', async () => {
    const { ucp } = JSON.parse(await outputHere(['info', ...PARTS, '--json'], { UCX_TLS: 'self' })) as {
      readonly ucp: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
    };
    expect(ucp['context']).toMatchObject({ createMs: expect.any(Number), memoryTypes: ['host'] });
    expect(ucp['worker']).toMatchObject({ addressBytes: expect.any(Number) });
    expect(ucp['endpoint']).toMatchObject({ transports: ['self/memory'], text: expect.stringContaining('lane[0]') });
  });

  it.skipIf(installedLibucp().libucp === undefined)('over libucx it is the text of libucp (needs libucp)', async () => {
    const text = await outputHere(['info', ...PARTS], { UCX_ENGINE: 'libucx', UCX_TLS: 'self,sysv,gaudi' });
    expect(text).toMatch(/^# +md 1 {2}: {2}component \d+ {2}sysv *$/m);
    expect(text).toMatch(/^# +address: \d+ bytes$/m);
    expect(text).toMatch(/^# +lane\[0\]: .*\/memory\S* md\[\d\].* am/m);
    expect(text).toMatch(/^# create time: /m);
  });
});

describe('info -d -t', () => {
  it.each([
    ['gaudi_copy', ['gaudi_cpy']],
    ['gaudi_cpy', ['gaudi_cpy']],
    ['gaudi', ['gaudi_cpy', 'gaudi_ipc']],
    ['sm', ['posix', 'cma']],
  ])('takes %s', async (name, transports) => {
    const text = await outputHere(['info', '-d', '-t', name]);
    expect([...text.matchAll(/^#\s+Transport: (\S+)$/gm)].map(([, found]) => found)).toEqual(transports);
  });

  it('prints megabytes of 2^20 bytes, as ucx_info does', async () => {
    const [text, json] = [
      await outputHere(['info', '-d', '-t', 'self']),
      await outputHere(['info', '-d', '-t', 'self', '--json']),
    ];
    const { devices } = JSON.parse(json) as {
      readonly devices: readonly [
        {
          readonly devices: readonly [
            { readonly attributes: { readonly performance: { readonly hostToHost: number } } },
          ];
        },
      ];
    };
    const { hostToHost } = devices[0].devices[0].attributes.performance;
    expect(text).toContain(`${(hostToHost / 2 ** 20).toFixed(2)} MB/sec`);
  });
});

/** Settings over libucp: what it is given, and that names of this library are not among it. */

import { describe, expect, it } from 'vitest';
import { CONFIG_TABLES } from '../../../src/assembly/program/config.ts';
import { Context } from '../../../src/index.ts';
import { UCP_FEATURE } from '../../../src/libucx/c/abi.ts';
import { readsVariable, UcpConfiguration } from '../../../src/libucx/c/ucp-configuration.ts';
import { getEnvironment } from '../../../src/sys/index.ts';
import { type Config, loadConfig } from '../../../src/ucs/config/config.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const { libucp } = installedLibucp();
/** Variables that later versions of libucp have. */
const LATER = [
  'UCX_MAX_RMA_RAILS',
  'UCX_MIN_RMA_CHUNK_SIZE',
  'UCX_MIN_RNDV_CHUNK_SIZE',
  'UCX_SINGLE_NET_DEVICE',
  'UCX_TCP_BRIDGE_ENABLE',
  'UCX_TCP_EP_BIND_SRC_ADDR',
  'UCX_PROTO_EMULATION_ENABLE',
];

function configOf(env: Readonly<Record<string, string>>): Config {
  return loadConfig(CONFIG_TABLES, { env });
}

/** The values that are in the environment only while libucp reads its configuration. */
function given(config: Config, names: readonly string[]): Record<string, string> {
  const found: Record<string, string> = {};
  const before = new Map(names.map((name) => [name, getEnvironment(name)]));
  const configuration = new UcpConfiguration(
    {
      ...libucp!.functions,
      ucp_config_read: (prefix, file, out) => {
        for (const name of names) {
          const value = getEnvironment(name);
          if (value !== undefined && value !== before.get(name)) found[name] = value;
        }
        return libucp!.functions.ucp_config_read(prefix, file, out);
      },
    },
    config,
    UCP_FEATURE.TAG,
  );
  configuration.use(() => {});
  return found;
}

describe.skipIf(libucp === undefined)('libucp (needs libucp)', () => {
  it('is given the variables that it has, of all that the environment sets', async () => {
    // It has loaded its transports, and knows their variables, once there is a context.
    await (await Context.create({ engine: 'libucx', config: { GAUDI_DRIVER: 'emulator' } })).close();
    const defaults = configOf({}).entries.map(({ name, text }) => [name, text] as const);
    const all = Object.fromEntries(defaults.filter(([, text]) => text !== ''));
    const names = Object.keys(all);
    for (const own of ['UCX_GAUDI_COPY_DMABUF', 'UCX_INSPECT', 'UCX_ENGINE', 'UCX_REQUESTS_MAX']) {
      expect(names).toContain(own);
    }
    const found = Object.keys(given(configOf(all), names));
    expect(found).toContain('UCX_TLS');
    const known = libucp!.variables();
    expect(found.filter((name) => known !== undefined && !readsVariable(known, name) && !LATER.includes(name))).toEqual(
      [],
    );
    expect(found.filter((name) => /GAUDI|INSPECT|ENGINE|REQUESTS_MAX|LIBUCP|STATS|PROFILE|SIGNO/.test(name))).toEqual(
      [],
    );
    // The environment is as before.
    for (const name of found) expect(getEnvironment(name), name).toBeUndefined();
  });

  it.each([
    ['UCX_TLS', 'tcp,self,gaudi_copy,gaudi_cpy,gaudi_ipc', 'tcp,self'],
    ['UCX_TLS', 'gaudi, posix', 'posix'],
    ['UCX_TLS', 'gaudi*,\\gaudi_cpy,gaudi_*,tcp', 'tcp'],
    ['UCX_TLS', 'gaudi', 'self'],
    ['UCX_TLS', '^gaudi_ipc', 'all'],
    ['UCX_TLS', '^gaudi_ipc,tcp', '^tcp'],
    ['UCX_ACC_DEVICES', 'gaudi0,gaudi1', 'all'],
    ['UCX_ACC_DEVICES', '^gaudi*', 'all'],
    ['UCX_ACC_DEVICES', 'gaudi0,other0', 'other0'],
    ['UCX_NET_DEVICES', 'lo', 'lo'],
    ['UCX_PROTO_INFO', 'auto', 'n'],
  ])('is not given names and values of this library: %s=%s', (name, value, theirs) => {
    expect(given(configOf({ [name]: value }), [name])).toEqual({ [name]: theirs });
  });
});

describe.skipIf(libucp === undefined)('a security setting (needs libucp)', () => {
  const config = { GAUDI_DRIVER: 'emulator', TCP_SECURITY: 'encrypt', TCP_KEY_FILE: '/nonexistent/key' };

  it('is refused over libucp, which cannot keep it', async () => {
    await expect(Context.create({ engine: 'libucx', config })).rejects.toMatchObject({
      code: 'ERR_UNSUPPORTED',
      message: expect.stringContaining('UCX_TCP_SECURITY=encrypt'),
    });
  });

  it('makes auto choose the engine that keeps it', async () => {
    // The native engine reads the key file.
    await expect(Context.create({ engine: 'auto', config })).rejects.toMatchObject({
      message: expect.stringContaining('/nonexistent/key'),
    });
  });
});

describe.skipIf(libucp === undefined)('a program over libucp (needs libucp)', { timeout: 60_000 }, () => {
  const { run } = useCommandLine();

  it('gets no warning of libucp about names of this library', () => {
    const { code, out, err } = run(['explain', '--size', '8', '--engine', 'libucx'], {
      UCX_TLS: 'tcp,self,gaudi_copy,gaudi_gdr,gaudi_ipc',
      UCX_NET_DEVICES: 'lo',
      UCX_ACC_DEVICES: 'gaudi0',
      UCX_GAUDI_COPY_RCACHE: 'y',
      UCX_INSPECT: 'n',
      UCX_REQUESTS_MAX: '1000',
    });
    expect([code, out]).toEqual([0, expect.stringContaining('engine libucx ')]);
    expect(`${out}${err}`).not.toMatch(/UCX +(WARN|ERROR)|not available|unused/);
  });
});

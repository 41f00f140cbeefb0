import { describe, expect, it } from 'vitest';
import { chooseEngine } from '../../assembly/engine.ts';
import { CONFIG_TABLES } from '../../assembly/program/config.ts';
import type { Program } from '../../assembly/program/program.ts';
import { type Config, loadConfig } from '../../ucs/config/config.ts';
import { fieldUseOf } from './field-use.ts';
import { rejectUnsupported, unsupportedSettings } from './ucp-configuration.ts';

const withOptions = (overrides: Readonly<Record<string, string>>): Config => loadConfig(CONFIG_TABLES, { overrides });

describe('the use of a field by the engine libucx', () => {
  it('is known for every field', () => {
    const names = withOptions({}).entries.map(({ name }) => name.replace('UCX_', ''));
    expect(names.filter((name) => fieldUseOf(name) === undefined)).toEqual([]);
    expect(fieldUseOf('TSL')).toBeUndefined();
  });

  it('lists the settings that have no effect', () => {
    expect(unsupportedSettings(withOptions({}))).toEqual([]);
    expect(unsupportedSettings(withOptions({ TLS: 'tcp', TCP_PEER_TIMEOUT: '3s', UNEXP_MAX_BYTES: '1m' }))).toEqual([
      'UCX_UNEXP_MAX_BYTES=1M',
      'UCX_TCP_PEER_TIMEOUT=3s',
    ]);
  });

  it.each(['auth', 'encrypt'])('refuses UCX_TCP_SECURITY=%s', (level) => {
    expect(() => rejectUnsupported(withOptions({ TCP_SECURITY: level }))).toThrow(
      expect.objectContaining({
        code: 'ERR_UNSUPPORTED',
        message: `engine libucx does not support UCX_TCP_SECURITY=${level} (option): use engine native, or unset UCX_TCP_SECURITY`,
      }),
    );
    rejectUnsupported(withOptions({ TCP_SECURITY: 'none' }));
  });

  it('decides the choice of auto: no setting that was given is dropped', () => {
    const choose = (overrides: Readonly<Record<string, string>>) =>
      chooseEngine({ config: withOptions({ ENGINE: 'auto', ...overrides }) } as Program, undefined).engine;
    expect(choose({ TCP_SECURITY: 'encrypt', TCP_CONNECT_TIMEOUT: '3s' })).toMatchObject({
      name: 'native',
      reason:
        'UCX_ENGINE=auto, and the engine libucx does not honour UCX_TCP_CONNECT_TIMEOUT=3s, UCX_TCP_SECURITY=encrypt',
    });
  });
});

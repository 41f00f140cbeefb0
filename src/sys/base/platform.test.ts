import { describe, expect, it } from 'vitest';
import { Status } from '../../ucs/type/status.ts';
import { checkPlatform } from './platform.ts';

const HERE = { platform: 'linux', arch: 'x64', versions: { node: '20.19.0' } };

describe('checkPlatform', () => {
  it('accepts Node.js on Linux on x86-64', () => {
    expect(checkPlatform(HERE)).toBe(undefined);
    expect(checkPlatform(process)).toBe(undefined);
  });

  it.each([
    [{ arch: 'arm64' }, 'linux on arm64'],
    [{ platform: 'darwin', arch: 'arm64' }, 'darwin on arm64'],
    [{ platform: 'win32' }, 'win32 on x64'],
    [{ versions: { node: '22.6.0', bun: '1.2.0' } }, 'Bun'],
    [{ versions: { node: '22.6.0', deno: '2.1.0' } }, 'Deno'],
  ])('refuses %o with one sentence', (facts, found) => {
    const refused = expect.objectContaining({
      code: 'ERR_PLATFORM',
      status: Status.UNSUPPORTED,
      message: expect.stringMatching(new RegExp(`^gaudi-ucx needs Node.js.*, because .*; this is ${found}$`)),
    });
    expect(() => checkPlatform({ ...HERE, ...facts })).toThrow(refused);
  });
});

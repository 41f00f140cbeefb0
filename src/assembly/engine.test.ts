/** The choice of the engine, on a machine whose UCX library is missing. */

import { describe, expect, it } from 'vitest';
import { statusError, UcxError } from '../ucs/type/error.ts';
import { Status } from '../ucs/type/status.ts';
import { chooseEngine, engineInstead, findUcxLibrary } from './engine.ts';
import type { EngineChoice } from './program/config.ts';
import { readProgram } from './program/program.ts';

const MISSING = 'libucp-missing.so.0';

const program = (settings: Readonly<Record<string, string>> = {}) =>
  readProgram({ config: { LIBUCP_PATH: MISSING, ...settings }, env: {}, configDirectories: [] });

describe('the engine', () => {
  it('is native if the program says so, whatever the variable says', () => {
    const { engine, libucp } = chooseEngine(program({ ENGINE: 'libucx' }), 'native');
    expect([engine.name, engine.reason, libucp]).toEqual(['native', "engine: 'native'", undefined]);
  });

  it('that is requested by name is not replaced: its failure is the answer', () => {
    for (const choose of [
      () => chooseEngine(program({ ENGINE: 'libucx' }), undefined),
      () => chooseEngine(program(), 'libucx'),
    ]) {
      expect(choose).toThrow(expect.objectContaining({ code: 'ERR_LIBUCX_NOT_FOUND' }));
    }
  });

  it('of auto is native where the library is missing, for its reason', () => {
    const { engine } = chooseEngine(program({ ENGINE: 'auto' }), undefined);
    expect([engine.name, engine.reason]).toEqual(['native', expect.stringMatching(/^UCX_ENGINE=auto, and .*missing/)]);
  });

  it('takes components of the program only if it is native', () => {
    const { engine } = chooseEngine(program(), 'auto', true);
    expect(engine.reason).toBe("engine: 'auto', and the engine libucx does not support components of the program");
    expect(() => chooseEngine(program(), 'libucx', true)).toThrow(
      expect.objectContaining({ code: 'ERR_UNSUPPORTED', message: expect.stringMatching(/engine: 'libucx'/) }),
    );
    expect(chooseEngine(program(), 'native', true).engine.reason).toBe("engine: 'native'");
  });

  it('is one of those that there are', () => {
    expect(() => chooseEngine(program(), 'ucx' as EngineChoice)).toThrow(/must be one of .*native/);
  });
});

describe('the engine instead of libucx', () => {
  const noTransport = new UcxError({
    code: 'ERR_NO_TRANSPORT',
    status: Status.UNREACHABLE,
    message: 'no transport is left',
    details: {},
  });

  it('is native where auto finds no transport, and nothing else fails over', () => {
    const auto = program({ ENGINE: 'auto' });
    expect(engineInstead(auto, undefined, noTransport)).toMatchObject({
      name: 'native',
      reason: 'UCX_ENGINE=auto, and no transport is left',
    });
    expect(engineInstead(auto, undefined, statusError(Status.NO_MEMORY, 'map') as UcxError)).toBeUndefined();
    expect(engineInstead(auto, 'libucx', noTransport)).toBeUndefined();
    expect(engineInstead(program({ ENGINE: 'libucx' }), undefined, noTransport)).toBeUndefined();
  });
});

it('tools get the reason for a missing library', () => {
  expect(findUcxLibrary(program())).toEqual({
    reason: expect.stringMatching(/libucp-missing\.so\.0 is not installed/),
  });
});

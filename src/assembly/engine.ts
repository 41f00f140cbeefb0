/** The selection of the engine: native, or the UCX library of the host; and identity and resources of that library for tools. */

import type { Engine } from '../api/contract/explanation.ts';
import { LIBUCX_CONFIG_TABLE } from '../libucx/c/config.ts';
import { type Libucp, openLibucp } from '../libucx/c/library.ts';
import { rejectUnsupported, unsupportedSettings } from '../libucx/c/ucp-configuration.ts';
import { printedContext } from '../libucx/core/open-context.ts';
import type { Config } from '../ucs/config/config.ts';
import { packageVersion } from '../ucs/sys/package.ts';
import { invalidParam, isUcxError, UcxError } from '../ucs/type/error.ts';
import { Status } from '../ucs/type/status.ts';
import { ENGINE_CHOICES, ENGINE_CONFIG_TABLE, type EngineChoice } from './program/config.ts';
import type { Program } from './program/program.ts';

/** A selected engine, and its library if any. */
export interface ChosenEngine {
  readonly engine: Engine;
  /** Undefined for the native engine. */
  readonly libucp: Libucp | undefined;
}

/**
 * Selects the engine. `auto` selects libucx if it is installed, unless a setting requires the native engine.
 * @param option choice of the program; undefined to use UCX_ENGINE
 * @param hasComponents whether the program adds components, which only the native engine supports
 * @throws UcxError ERR_INVALID_PARAM; ERR_LIBUCX_NOT_FOUND, ERR_LIBUCX_UNUSABLE, ERR_LIBUCX_VERSION if libucx is requested by name; ERR_UNSUPPORTED if it is
 * requested by name but cannot apply a security setting
 */
export function chooseEngine(
  { config }: Program,
  option: EngineChoice | undefined,
  hasComponents = false,
): ChosenEngine {
  if (option !== undefined && !ENGINE_CHOICES.includes(option)) {
    throw invalidParam('engine', `must be one of ${ENGINE_CHOICES.join(', ')}`, option);
  }
  const { choice, by } = choiceOf(config, option);
  if (choice === 'native') return native(by);
  if (hasComponents) {
    if (choice === 'auto') return native(`${by}, and the engine libucx does not support components of the program`);
    throw new UcxError({
      code: 'ERR_UNSUPPORTED',
      status: Status.UNSUPPORTED,
      message: `the engine libucx does not support components of the program, because libucp moves the data: use the engine native (${by})`,
    });
  }
  const unkept = unsupportedSettings(config);
  if (choice === 'auto' && unkept.length > 0) {
    return native(`${by}, and the engine libucx does not honour ${unkept.join(', ')}`);
  }
  try {
    const libucp = openLibucp(config.get(LIBUCX_CONFIG_TABLE));
    rejectUnsupported(config);
    const reason = choice === 'auto' ? `${by}, and ${libucp.path} is UCX ${libucp.version}` : by;
    return { engine: { name: 'libucx', version: libucp.version, reason }, libucp };
  } catch (error) {
    if (choice === 'libucx' || !isUcxError(error)) throw error;
    return native(`${by}, and ${error.message}`);
  }
}

/**
 * The engine that `auto` uses if the settings leave no transport for libucp: the native one, which has others. Undefined for other failures, and if libucx
 * was requested by name.
 */
export function engineInstead(
  { config }: Program,
  option: EngineChoice | undefined,
  error: UcxError,
): Engine | undefined {
  const { choice, by } = choiceOf(config, option);
  if (choice !== 'auto' || error.code !== 'ERR_NO_TRANSPORT') return undefined;
  return native(`${by}, and ${error.message}`).engine;
}

function choiceOf(
  config: Config,
  option: EngineChoice | undefined,
): { readonly choice: EngineChoice; readonly by: string } {
  const choice = option ?? config.get(ENGINE_CONFIG_TABLE).ENGINE;
  return { choice, by: option === undefined ? `UCX_ENGINE=${choice}` : `engine: '${choice}'` };
}

function native(reason: string): ChosenEngine {
  return { engine: { name: 'native', version: packageVersion(), reason }, libucp: undefined };
}

/** The library, or the reason why there is none. */
export type UcxLibrary =
  | {
      readonly version: string;
      /** The file that was loaded. */
      readonly file: string;
      /** The transports and devices that libucp prints for this configuration. @throws UcxError of ucp_init */
      readonly describe: () => string;
      readonly reason?: never;
    }
  | { readonly reason: string; readonly version?: never };

/** Finds the library that the engine `libucx` would use, regardless of the selected engine. */
export function findUcxLibrary({ config }: Program): UcxLibrary {
  try {
    const libucp = openLibucp(config.get(LIBUCX_CONFIG_TABLE));
    return { version: libucp.version, file: libucp.file, describe: () => printedContext(libucp, config) };
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return { reason: error.message };
  }
}

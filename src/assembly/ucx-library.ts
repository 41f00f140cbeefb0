/** The UCX library of the machine, for tools: its identity and its resources, or the reason why there is none. Selects nothing. */

import { LIBUCX_CONFIG_TABLE } from '../libucx/c/config.ts';
import { openLibucp } from '../libucx/c/library.ts';
import { printedContext } from '../libucx/core/open-context.ts';
import { isUcxError } from '../ucs/type/error.ts';
import type { Program } from './program/program.ts';

/** The library, or the reason why there is none. */
export type UcxLibrary =
  | {
      readonly version: string;
      /** The file that was loaded. */
      readonly file: string;
      /** The text that it prints about its transports and devices under this configuration. @throws UcxError of ucp_init */
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

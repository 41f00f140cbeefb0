/** Checks the platform and adds missing symbols, before the FFI is loaded. Modules that load the FFI import this module first. */

import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** Properties of the platform, as in `process`. */
export interface PlatformFacts {
  readonly platform: string;
  readonly arch: string;
  readonly versions: Readonly<Record<string, string | undefined>>;
}

/** Runtimes that imitate Node.js, by their entry in `process.versions`. They lack libuv, whose event loop polls the descriptors. */
const OTHER_RUNTIMES: Readonly<Record<string, string>> = { bun: 'Bun', deno: 'Deno' };

/**
 * Rejects other runtimes, systems and processors: system call numbers and struct layouts are those of Linux on x86-64.
 * @throws UcxError ERR_PLATFORM
 */
export function checkPlatform({ platform, arch, versions }: PlatformFacts): void {
  const runtime = Object.keys(OTHER_RUNTIMES).find((name) => versions[name] !== undefined);
  const found = runtime === undefined ? `${platform} on ${arch}` : OTHER_RUNTIMES[runtime];
  if (runtime === undefined && platform === 'linux' && arch === 'x64') return;
  const needs =
    runtime === undefined
      ? 'gaudi-ucx needs Node.js on Linux on x86-64, because it uses the system calls and struct layouts of that platform'
      : 'gaudi-ucx needs Node.js, because it uses the event loop of Node.js (libuv)';
  const message = `${needs}; this is ${found}`;
  throw new UcxError({
    code: 'ERR_PLATFORM',
    status: Status.UNSUPPORTED,
    message,
    details: { platform, arch, runtime },
  });
}

checkPlatform(process);

// Before Node.js 24, node:vm contexts lack these symbols, and some test runners load the package in such a context.
if (Symbol.dispose === undefined) Object.defineProperty(Symbol, 'dispose', { value: Symbol.for('Symbol.dispose') });
if (Symbol.asyncDispose === undefined)
  Object.defineProperty(Symbol, 'asyncDispose', { value: Symbol.for('Symbol.asyncDispose') });

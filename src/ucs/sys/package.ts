/** The installed package: its folder, its version and its dependencies. */

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import { UcxError } from '../type/error.ts';
import { Status } from '../type/status.ts';

/** This module. Bundlers that write CommonJS leave `import.meta` empty, but CommonJS has `__filename`. */
const HERE: string = (import.meta.url as string | undefined) ?? __filename;

/** The manifest, located by the name of the package: the same file for the sources, the compiled modules and a program's bundle. */
const MANIFEST: string = findManifest(HERE);

/**
 * Locates the manifest of the package.
 * @param from a module of the package, or the bundle that contains it
 * @throws UcxError ERR_NOT_INSTALLED
 */
export function findManifest(from: string): string {
  try {
    return createRequire(from).resolve('gaudi-ucx/package.json');
  } catch (cause) {
    throw new UcxError({
      code: 'ERR_NOT_INSTALLED',
      status: Status.UNSUPPORTED,
      message: `gaudi-ucx is not installed where ${from} can find it. A bundle cannot contain it, because its dependency koffi has native code: install gaudi-ucx there, and exclude it from the bundle (external: ['gaudi-ucx'])`,
      cause,
    });
  }
}

/** The folder of the package. */
export const PACKAGE_FOLDER: string = dirname(MANIFEST);

/**
 * Loads a dependency of the package, also from a bundle that cannot find it. Bundlers follow imports, but not this call.
 * @throws UcxError ERR_NOT_INSTALLED
 */
export function requireDependency(name: string): unknown {
  try {
    return createRequire(MANIFEST)(name);
  } catch (cause) {
    throw new UcxError({
      code: 'ERR_NOT_INSTALLED',
      status: Status.UNSUPPORTED,
      message: `${name}, a dependency of gaudi-ucx, cannot be loaded: ${cause instanceof Error ? cause.message : cause}: install gaudi-ucx with its optional dependencies (npm install without --omit=optional)`,
      cause,
    });
  }
}

let version: string | undefined;

/** The version of the package, such as `0.1.0`; read once, so that later calls need no file descriptor. */
export function packageVersion(): string {
  version ??= (JSON.parse(readFileSync(MANIFEST, 'utf8')) as { readonly version: string }).version;
  return version;
}

/** The installed package: its folder and its version. */

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';

/** The manifest, located by the package's own name: the same file from the sources and from the compiled modules. */
const MANIFEST: string = createRequire(import.meta.url).resolve('gaudi-ucx/package.json');

/** The folder of the package. */
export const PACKAGE_FOLDER: string = dirname(MANIFEST);

let version: string | undefined;

/** The version of the package, such as `0.1.0`; read once, so that later calls need no descriptor. */
export function packageVersion(): string {
  version ??= (JSON.parse(readFileSync(MANIFEST, 'utf8')) as { readonly version: string }).version;
  return version;
}

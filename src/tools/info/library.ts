/** `info -v` and `info -d`: the UCX library of the machine, as it describes itself. */

import type { UcxLibrary } from '../../assembly/ucx-library.ts';
import { isUcxError } from '../../ucs/type/error.ts';

/** The line for `info -v`. */
export function describeLibraryVersion(library: UcxLibrary): string {
  if (library.reason !== undefined) return `# UCX library: none: ${library.reason}`;
  return `# UCX library: ${library.version} (${library.file})`;
}

/** The text for `info -d`: its transports and devices, or one line with the reason why there are none. */
export function describeLibrary(library: UcxLibrary): string {
  const title = describeLibraryVersion(library);
  if (library.reason !== undefined) return ['#', title, '#'].join('\n');
  return ['#', title, '#   what it offers to the engine libucx (UCX_ENGINE)', contentOf(library)].join('\n');
}

function contentOf(library: UcxLibrary & { readonly describe: () => string }): string {
  try {
    return library.describe().trimEnd();
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return `#   < nothing: ${error.message} >\n#`;
  }
}

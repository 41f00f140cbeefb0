/** Files of the page, which the build places beside the program. */

import { readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** A file as it is sent. */
export interface PageFile {
  readonly type: string;
  readonly bytes: Buffer;
}

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
};

/** Folder of the files, seen from a bundle of the package. */
const FOLDER = fileURLToPath(new URL('../web', import.meta.url));

/**
 * The files by their paths in URLs, such as `/assets/page.js`; `/` is the page.
 * @throws UcxError ERR_WEB_PAGE if the page is not built
 */
export function readPageFiles(folder: string = FOLDER): ReadonlyMap<string, PageFile> {
  const files = new Map<string, PageFile>();
  try {
    for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
      const type = TYPES[extname(name)];
      if (type === undefined) continue;
      files.set(name === 'index.html' ? '/' : `/${name}`, { type, bytes: readFileSync(join(folder, name)) });
    }
  } catch (error) {
    throw notBuilt(folder, error);
  }
  if (!files.has('/')) throw notBuilt(folder, undefined);
  return files;
}

function notBuilt(folder: string, cause: unknown): UcxError {
  return new UcxError({
    code: 'ERR_WEB_PAGE',
    status: Status.NO_ELEM,
    message: `the page is not in ${folder}: run npm run build`,
    cause,
  });
}

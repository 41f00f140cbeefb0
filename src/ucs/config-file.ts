/**
 * Configuration files of UCX (`ucx.conf`): where they are looked for and what is in them. What the assignments mean is decided in
 * config.ts.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { UcxError } from './error.ts';
import { Status } from './status.ts';

/** The name of the files. */
export const CONFIG_FILE_NAME = 'ucx.conf';

/** One `NAME=value` line. */
export interface ConfigAssignment {
  readonly name: string;
  readonly value: string;
  /** Counted from 1. */
  readonly line: number;
}

/** A parsed file. */
export interface ConfigFile {
  readonly path: string;
  readonly assignments: readonly ConfigAssignment[];
  /** Names of sections whose lines were skipped: UCX applies them by CPU and DMI identity, this library has no such rules. */
  readonly skippedSections: readonly string[];
}

/** The places that decide where files are looked for; each may be unknown. */
export interface ConfigPlaces {
  /** The `etc/ucx` folder of the installation. */
  readonly installEtc?: string | undefined;
  /** The `../etc/ucx` folder seen from the library. */
  readonly libraryEtc?: string | undefined;
  /** $HOME */
  readonly home?: string | undefined;
  /** $UCX_CONFIG_DIR */
  readonly configDirectory?: string | undefined;
  readonly currentDirectory?: string | undefined;
}

/** The folders to look in, in the order in which UCX reads them: a later file overrides an earlier one. */
export function configDirectories(places: ConfigPlaces): string[] {
  const ordered = [
    places.installEtc,
    places.libraryEtc,
    places.home,
    places.configDirectory,
    places.currentDirectory,
  ].filter((place) => place !== undefined && place !== '') as string[];
  // A folder that is named twice counts where it is named last.
  return ordered.filter((place, index) => ordered.lastIndexOf(place) === index);
}

/**
 * Parses the text of a file: `NAME=value` lines, `#` or `;` comments, blank lines, `[section]` headers. Values lose the blanks
 * around them and a comment that follows a blank.
 * @param path only for messages and for {@link ConfigFile.path}
 * @throws UcxError ERR_CONFIG_FILE naming path and line for anything else
 */
export function parseConfigFile(text: string, path: string = CONFIG_FILE_NAME): ConfigFile {
  const assignments: ConfigAssignment[] = [];
  const skippedSections: string[] = [];
  text
    .replace(/^\uFEFF/, '')
    .split(/\r?\n/)
    .forEach((content, index) => {
      const trimmed = content.trim();
      if (trimmed === '' || trimmed.startsWith('#') || trimmed.startsWith(';')) return;
      const section = /^\[(.*)\]$/.exec(trimmed);
      if (section !== null) {
        skippedSections.push(section[1]!);
        return;
      }
      const match = /^([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)$/.exec(trimmed);
      if (match === null) throw fileError(path, index + 1, trimmed);
      if (skippedSections.length > 0) return;
      const value = match[2]!.replace(/(^|\s)[#;].*$/, '').trim();
      assignments.push({ name: match[1]!, value, line: index + 1 });
    });
  return { path, assignments, skippedSections };
}

/**
 * Reads `ucx.conf` from each of `directories` that has one, in that order.
 * @throws UcxError ERR_CONFIG_FILE for a file that is there but cannot be read or parsed
 */
export function readConfigFiles(directories: readonly string[]): ConfigFile[] {
  const files: ConfigFile[] = [];
  for (const directory of directories) {
    const path = join(directory, CONFIG_FILE_NAME);
    const text = readIfThere(path);
    if (text !== undefined) files.push(parseConfigFile(text, path));
  }
  return files;
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw new UcxError({
      code: 'ERR_CONFIG_FILE',
      status: Status.IO_ERROR,
      message: `cannot read ${path}: ${(cause as Error).message}`,
      details: { path },
      cause,
    });
  }
}

function fileError(path: string, line: number, content: string): UcxError {
  return new UcxError({
    code: 'ERR_CONFIG_FILE',
    status: Status.INVALID_PARAM,
    message: `${path}:${line}: line must be NAME=value, a comment or a section, got ${JSON.stringify(content)}`,
    details: { path, line },
  });
}

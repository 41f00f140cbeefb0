/** Configuration files of UCX (`ucx.conf`): their folders and their syntax. */

import { closeSync, constants, fstatSync, lstatSync, openSync, readFileSync, type Stats } from 'node:fs';
import { join } from 'node:path';
import { asError, describeValue, UcxError } from '../type/error.ts';
import { Status } from '../type/status.ts';
import { isItem, matchesItem } from './list.ts';

export const CONFIG_FILE_NAME = 'ucx.conf';
/** Device number of /dev/null: containers and services hide a file by a bind mount of, or a link to, /dev/null. */
const NULL_DEVICE = 0x103;

/** One `NAME=value` line. */
export interface ConfigAssignment {
  readonly name: string;
  readonly value: string;
  /** Counted from 1. */
  readonly line: number;
  /** The section it is in; undefined before the first. */
  readonly section: string | undefined;
}

/** A parsed file. */
export interface ConfigFile {
  readonly path: string;
  readonly assignments: readonly ConfigAssignment[];
  /** One sentence for each section that does not apply to this machine, and for each folder that this user may not search. */
  readonly skipped: readonly string[];
}

/** Returns a fact about the machine by the name that conditions use, such as `CPU vendor`; undefined if the fact is unknown. */
export type MachineFacts = (name: string) => string | undefined;

/** Locations that determine which folders are searched for files; each may be unknown. */
export interface ConfigLocations {
  /** The `etc/ucx` folder of the installation. */
  readonly installEtc?: string | undefined;
  /** The `../etc/ucx` folder relative to the library. */
  readonly libraryEtc?: string | undefined;
  /** $HOME */
  readonly home?: string | undefined;
  /** $UCX_CONFIG_DIR */
  readonly configDirectory?: string | undefined;
  readonly currentDirectory?: string | undefined;
}

/** The folders to search, in the order in which UCX reads them: a later file overrides an earlier one. */
export function configDirectories(places: ConfigLocations): string[] {
  const ordered = [
    places.installEtc,
    places.libraryEtc,
    places.home,
    places.configDirectory,
    places.currentDirectory,
  ].filter((place) => place !== undefined);
  // If a folder occurs twice, the last occurrence counts.
  return ordered.filter((place, index) => place !== '' && ordered.lastIndexOf(place) === index);
}

/** A section that is being parsed. */
interface Section {
  readonly name: string | undefined;
  readonly assignments: ConfigAssignment[];
  /** The first condition that is not met. */
  failed: string | undefined;
}

/** The part of a line before its comment. As in UCX, a comment begins at a `;` after a blank, and not at a `#`. */
export function beforeComment(text: string): string {
  return text.replace(/\s;.*$/s, '');
}

/**
 * Parses a file of `NAME=value` lines, comment lines that begin with `#` or `;`, blank lines and `[section]` headers. Blanks around a value and a comment that
 * begins with `;` after a blank are removed. The lines of a section apply if all its conditions are met. A condition is a line such as `CPU vendor=AMD`: its
 * name contains a blank, and its value may be a glob.
 * @param path only for messages and for {@link ConfigFile.path}
 * @param facts about this machine; a condition on an unknown fact is not met
 * @throws UcxError ERR_CONFIG_FILE with path and line for any other line
 */
export function parseConfigFile(
  text: string,
  path: string = CONFIG_FILE_NAME,
  facts: MachineFacts = () => undefined,
): ConfigFile {
  const sections: Section[] = [{ name: undefined, assignments: [], failed: undefined }];
  const lines = text.replace(/^\uFEFF/, '').split(/\r?\n/);
  for (const [index, content] of lines.entries()) {
    const trimmed = content.trim();
    if (trimmed === '' || trimmed.startsWith('#') || trimmed.startsWith(';')) continue;
    const header = /^\[(.*)\]$/.exec(beforeComment(trimmed).trim());
    if (header === null) takeLine(sections.at(-1)!, trimmed, { path, line: index + 1 }, facts);
    else sections.push({ name: header[1]!, assignments: [], failed: undefined });
  }
  return {
    path,
    assignments: sections.filter(({ failed }) => failed === undefined).flatMap(({ assignments }) => assignments),
    skipped: sections
      .filter(({ failed }) => failed !== undefined)
      .map(({ name, failed }) => `section [${name}] of ${path} does not apply to this machine: ${failed}`),
  };
}

interface Place {
  readonly path: string;
  readonly line: number;
}

function takeLine(section: Section, content: string, { path, line }: Place, facts: MachineFacts): void {
  const match = /^([A-Za-z_][A-Za-z0-9_]*(?: +[A-Za-z0-9_]+)*)\s*=(.*)$/.exec(content);
  const isCondition = match?.[1]?.includes(' ') === true;
  if (match === null || (isCondition && section.name === undefined)) throw fileError(path, line, content);
  const [, name = '', text = ''] = match;
  const value = beforeComment(text).trim();
  if (!isCondition) section.assignments.push({ name: name, value, line, section: section.name });
  else if (!isItem(value)) throw fileError(path, line, content);
  else if (!matchesItem(value.toLowerCase(), facts(name)?.toLowerCase() ?? '')) section.failed ??= `${name}=${value}`;
}

/**
 * Reads `ucx.conf` from each of `directories` that has one, in that order. A folder that this user may not search is skipped: $HOME may be the folder of
 * another user, for example in a container that runs under a different user id.
 * @throws UcxError ERR_CONFIG_FILE for an existing file that cannot be read or parsed
 */
export function readConfigFiles(directories: readonly string[], facts?: MachineFacts): ConfigFile[] {
  const files: ConfigFile[] = [];
  for (const directory of directories) {
    const path = join(directory, CONFIG_FILE_NAME);
    try {
      files.push(parseConfigFile(readFile(path), path, facts));
    } catch (cause) {
      const code = asError(cause).code;
      if (code === 'ENOENT' || code === 'ENOTDIR') continue;
      if (cause instanceof UcxError) throw cause;
      if (code !== 'EACCES' || isThere(path)) throw unreadable(path, asError(cause).message, cause);
      files.push({
        path,
        assignments: [],
        skipped: [`${directory} cannot be searched for ${CONFIG_FILE_NAME}: permission denied`],
      });
    }
  }
  return files;
}

/** Reads a file. Does not wait for the writer of a pipe, and rejects devices, which may be endless: either would hang every program. */
function readFile(path: string): string {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if (!isText(fstatSync(fd))) throw unreadable(path, 'not a regular file');
    return readFileSync(fd, 'utf8');
  } finally {
    closeSync(fd);
  }
}

function isText(file: Stats): boolean {
  return file.isFile() || (file.isCharacterDevice() && file.rdev === NULL_DEVICE);
}

/** False also if this user may not search the folder. */
function isThere(path: string): boolean {
  try {
    lstatSync(path);
    return true;
  } catch {
    return false;
  }
}

function unreadable(path: string, reason: string, cause?: unknown): UcxError {
  return new UcxError({
    code: 'ERR_CONFIG_FILE',
    status: Status.IO_ERROR,
    message: `cannot read ${path}: ${reason}`,
    details: { path },
    cause,
  });
}

function fileError(path: string, line: number, content: string): UcxError {
  return new UcxError({
    code: 'ERR_CONFIG_FILE',
    status: Status.INVALID_PARAM,
    message: `${path}:${line}: line must be NAME=value, a comment or a section, got ${describeValue(content)}`,
    details: { path, line },
  });
}

/** Words of completion scripts: the place of a command, and quoting for POSIX shells. */

import type { CommandTable } from './table.ts';

/** The words below the program, each behind a space: ` node up`. */
export function keyOf({ path }: CommandTable): string {
  return path
    .slice(1)
    .map((word) => ` ${word}`)
    .join('');
}

/** Text in single quotes, for bash and zsh. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Words of completion scripts: the path of a command, and quoting for POSIX shells. */

import type { CommandTable } from './table.ts';

/** Path of a command without the program, each word after a space: ` node up`. */
export function keyOf({ path }: CommandTable): string {
  return path
    .slice(1)
    .map((word) => ` ${word}`)
    .join('');
}

/** Quotes text for bash and zsh. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

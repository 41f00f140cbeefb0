/** The completion script for bash. */

import { keyOf, quote } from './shell-words.ts';
import { allTables, type CommandTable, type OptionRow } from './table.ts';

/** The script: `source <(gaudi-ucx completion bash)`. */
export function bashScript(program: CommandTable): string {
  const tables = allTables(program);
  const deeper = tables.slice(1).map((table) => `      ${quote(keyOf(table))}) at=${quote(keyOf(table))} ;;`);
  const values = tables.flatMap((table) =>
    table.options
      .filter(({ takesValue }) => takesValue)
      .map((option) => `    ${patternsOf(table, option)}) ${replyOf(option.values)} return ;;`),
  );
  const words = tables.map((table) => `    ${quote(keyOf(table))}) words=${quote(wordsOf(table).join(' '))} ;;`);
  return `# bash completion of gaudi-ucx: source <(gaudi-ucx completion bash)
_gaudi_ucx() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]} at= words= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at \${COMP_WORDS[i]}" in
${deeper.join('\n')}
    esac
  done
  COMPREPLY=()
  case "$at $previous" in
${values.join('\n')}
  esac
  case "$at" in
${words.join('\n')}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if ((\${#COMPREPLY[@]} == 0)); then mapfile -t COMPREPLY < <(compgen -f -- "$current"); fi
}
complete -o filenames -F _gaudi_ucx gaudi-ucx
`;
}

function patternsOf(table: CommandTable, { short, long }: OptionRow): string {
  return [short, long]
    .filter((name) => name !== undefined)
    .map((name) => quote(`${keyOf(table)} ${name}`))
    .join(' | ');
}

function replyOf(values: readonly string[] | undefined): string {
  const words = values === undefined ? '-f' : `-W ${quote(values.join(' '))}`;
  return `mapfile -t COMPREPLY < <(compgen ${words} -- "$current");`;
}

function wordsOf({ commands, options, arguments: parameters }: CommandTable): string[] {
  return [
    ...commands.map(({ name }) => name),
    ...parameters.flatMap(({ values }) => values ?? []),
    ...options.flatMap(({ short, long }) => [short, long].filter((name) => name !== undefined)),
  ];
}

/** The completion script for fish. */

import { keyOf } from './shell-words.ts';
import { allTables, type CommandTable, type OptionRow } from './table.ts';

/** The script: `gaudi-ucx completion fish | source`. */
export function fishScript(program: CommandTable): string {
  const tables = allTables(program);
  const deeper = tables
    .slice(1)
    .map((table) => `            case ${quote(keyOf(table))}\n                set at ${quote(keyOf(table))}`);
  return `# fish completion of gaudi-ucx: gaudi-ucx completion fish | source
function __gaudi_ucx_at
    set -l at ''
    for word in (commandline -opc)[2..]
        switch "$at $word"
${deeper.join('\n')}
        end
    end
    test "$at" = "$argv[1]"
end
complete -c gaudi-ucx -e
${tables.flatMap(linesOf).join('\n')}
`;
}

function linesOf(table: CommandTable): string[] {
  const where = `complete -c gaudi-ucx -n ${quote(`__gaudi_ucx_at ${quote(keyOf(table))}`)}`;
  return [
    ...table.commands.map((child) => `${where} -f -a ${quote(child.name)} -d ${quote(child.description)}`),
    ...table.arguments.flatMap(({ values, description }) =>
      values === undefined ? [] : [`${where} -f -a ${quote(values.join(' '))} -d ${quote(description)}`],
    ),
    ...table.options.map((option) => `${where}${flagsOf(option)} -d ${quote(option.description)}`),
  ];
}

function flagsOf({ short, long, takesValue, values }: OptionRow): string {
  const names = [
    ...(short === undefined ? [] : [` -s ${short.slice(1)}`]),
    ...(long === undefined ? [] : [` -l ${long.slice(2)}`]),
  ];
  if (!takesValue) return names.join('');
  return `${names.join('')} ${values === undefined ? '-r -F' : `-x -a ${quote(values.join(' '))}`}`;
}

function quote(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}

/** Completion scripts for bash, zsh and fish. */

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

/** The script: `source <(gaudi-ucx completion zsh)`, or a file `_gaudi-ucx` in a folder of `fpath`. */
export function zshScript(program: CommandTable): string {
  return `#compdef gaudi-ucx
# zsh completion of gaudi-ucx: source <(gaudi-ucx completion zsh)
${allTables(program).map(functionOf).join('\n')}
if [[ \${zsh_eval_context[-1]} == loadautofunc ]]; then
  ${nameOf(program)} "$@"
else
  compdef ${nameOf(program)} gaudi-ucx
fi
`;
}

function functionOf(table: CommandTable): string {
  const specs = table.options.flatMap(optionSpecs);
  if (table.commands.length === 0) {
    const [{ values } = { values: undefined }] = table.arguments;
    const rest =
      table.arguments.length === 0
        ? []
        : [values === undefined ? "'*:file:_files'" : `'1:value:(${values.join(' ')})'`];
    return `${nameOf(table)}() {\n  _arguments -s \\\n    ${[...specs, ...rest].join(' \\\n    ')}\n}`;
  }
  const names = table.commands.map((child) => `    ${quote(`${child.path.at(-1)}:${specText(child.description)}`)}`);
  const cases = table.commands.map((child) => `    ${child.path.at(-1)}) ${nameOf(child)} ;;`);
  return `${nameOf(table)}() {
  local context state state_descr line
  typeset -A opt_args
  _arguments -C \\
    ${[...specs, "'1:command:->command'", "'*::argument:->argument'"].join(' \\\n    ')}
  local -a commands=(
${names.join('\n')}
  )
  case $state in
  command) _describe command commands ;;
  argument)
    case $line[1] in
${cases.join('\n')}
    esac
    ;;
  esac
}`;
}

/** The forms of an option for _arguments. */
function optionSpecs({ short, long, takesValue, values, description }: OptionRow): string[] {
  const names = [short, long].filter((name) => name !== undefined);
  const action = values === undefined ? '_files' : `(${values.join(' ')})`;
  const text = `[${specText(description).replaceAll(']', '\\]')}]${takesValue ? `:value:${action}` : ''}`;
  return names.map((name) => quote(`${name}${text}`));
}

function nameOf({ path }: CommandTable): string {
  return `_${path.join('_').replaceAll('-', '_')}`;
}

function specText(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll(':', '\\:').replaceAll('[', '\\[');
}

/** The script: `gaudi-ucx completion fish | source`. */
export function fishScript(program: CommandTable): string {
  const tables = allTables(program);
  const deeper = tables
    .slice(1)
    .map((table) => `            case ${quoteFish(keyOf(table))}\n                set at ${quoteFish(keyOf(table))}`);
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
  const where = `complete -c gaudi-ucx -n ${quoteFish(`__gaudi_ucx_at ${quoteFish(keyOf(table))}`)}`;
  return [
    ...table.commands.map((child) => `${where} -f -a ${quoteFish(child.name)} -d ${quoteFish(child.description)}`),
    ...table.arguments.flatMap(({ values, description }) =>
      values === undefined ? [] : [`${where} -f -a ${quoteFish(values.join(' '))} -d ${quoteFish(description)}`],
    ),
    ...table.options.map((option) => `${where}${flagsOf(option)} -d ${quoteFish(option.description)}`),
  ];
}

function flagsOf({ short, long, takesValue, values }: OptionRow): string {
  const names = [
    ...(short === undefined ? [] : [` -s ${short.slice(1)}`]),
    ...(long === undefined ? [] : [` -l ${long.slice(2)}`]),
  ];
  if (!takesValue) return names.join('');
  return `${names.join('')} ${values === undefined ? '-r -F' : `-x -a ${quoteFish(values.join(' '))}`}`;
}

function quoteFish(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}

/** Path of a command without the program, each word after a space: ` node up`. */
function keyOf({ path }: CommandTable): string {
  return path
    .slice(1)
    .map((word) => ` ${word}`)
    .join('');
}

/** Quotes text for bash and zsh. */
function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

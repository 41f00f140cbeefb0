/** The completion script for zsh. */

import { quote } from './shell-words.ts';
import { allTables, type CommandTable, type OptionRow } from './table.ts';

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

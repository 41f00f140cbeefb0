/** Manual pages of the commands, in the macros of man(7). */

import type { CommandTable } from '../src/tools/completion/table.ts';

const EXIT_CODES: readonly (readonly [string, string])[] = [
  ['0', 'The command succeeded.'],
  ['1', 'It failed: the last line of standard error says why.'],
  ['2', 'Its arguments are wrong: the last line of standard error says which.'],
  ['130', 'It was interrupted.'],
];

/** A page. */
export interface ManPage {
  /** Name of its file, such as `gaudi-ucx-perftest.1`. */
  readonly file: string;
  readonly text: string;
}

/** A page for the program, and one for each of its commands, which contains those of its subcommands. */
export function manPages(program: CommandTable, version: string): ManPage[] {
  return [program, ...program.commands].map((table) => {
    const name = table.path.join('-');
    return { file: `${name}.1`, text: pageOf(program, table, name, version) };
  });
}

function pageOf(program: CommandTable, table: CommandTable, name: string, version: string): string {
  const isProgram = table === program;
  const others = program.commands.map(({ path }) => path.join('-')).filter((other) => other !== name);
  const lines = [
    `.TH "${roff(name.toUpperCase())}" "1" "" "${roff(`gaudi-ucx ${version}`)}" "User Commands"`,
    '.SH NAME',
    `${roff(name)} \\- ${roff(table.description)}`,
    '.SH SYNOPSIS',
    ...synopsisOf(table),
    '.SH DESCRIPTION',
    sentence(table.description),
    ...(isProgram ? commandsOf(table) : partsOf(table)),
    '.SH EXIT STATUS',
    ...EXIT_CODES.flatMap(([code, text]) => ['.TP', `.B ${code}`, roff(text)]),
    '.SH ENVIRONMENT',
    'Variables UCX_* configure the library;',
    '.B gaudi-ucx info \\-c \\-f',
    'lists them with their defaults.',
    '.SH SEE ALSO',
    (isProgram ? others : ['gaudi-ucx', ...others]).map((other) => `.BR ${roff(other)} (1)`).join(' ,\n'),
  ];
  return `${lines.join('\n')}\n`;
}

function synopsisOf(table: CommandTable): string[] {
  const own = `.B ${roff(table.path.join(' '))}\n${roff(table.usage)}`;
  return [own, ...table.commands.flatMap((child) => ['.br', ...synopsisOf(child)])];
}

function commandsOf(table: CommandTable): string[] {
  return [
    '.SH COMMANDS',
    ...table.commands.flatMap(({ path, description }) => ['.TP', `.B ${roff(path.at(-1)!)}`, sentence(description)]),
    ...optionsOf('.SH OPTIONS', table),
  ];
}

/** Arguments and options of a command, and its subcommands. */
function partsOf(table: CommandTable): string[] {
  return [
    ...argumentsOf('.SH ARGUMENTS', table),
    ...optionsOf('.SH OPTIONS', table),
    ...(table.commands.length === 0 ? [] : ['.SH COMMANDS', ...table.commands.flatMap(subcommandOf)]),
  ];
}

function subcommandOf(table: CommandTable): string[] {
  return [
    `.SS "${roff(table.path.slice(1).join(' '))}"`,
    sentence(table.description),
    ...argumentsOf(undefined, table),
    ...optionsOf(undefined, table),
    ...table.commands.flatMap(subcommandOf),
  ];
}

function argumentsOf(heading: string | undefined, { arguments: rows }: CommandTable): string[] {
  if (rows.length === 0) return [];
  const items = rows.flatMap(({ text, description }) => ['.TP', `.I ${roff(text)}`, sentence(description)]);
  return [...(heading === undefined ? [] : [heading]), ...items];
}

function optionsOf(heading: string | undefined, { options }: CommandTable): string[] {
  const items = options.flatMap(({ flags, description, defaultText }) => [
    '.TP',
    `.B ${roff(flags)}`,
    sentence(defaultText === undefined ? description : `${description} (${defaultText})`),
  ]);
  return [...(heading === undefined ? [] : [heading]), ...items];
}

function sentence(text: string): string {
  const whole = text === '' ? '-' : `${text[0]!.toUpperCase()}${text.slice(1)}`;
  return roff(/[.!?]$/.test(whole) ? whole : `${whole}.`);
}

/** Text that roff prints as it is. */
function roff(text: string): string {
  const plain = text.replaceAll('\\', '\\e').replaceAll('-', '\\-').replaceAll('"', '\\(dq');
  return /^[.']/.test(plain) ? `\\&${plain}` : plain;
}

/** Table of commands, options and arguments, made from the definitions of commander. */

import type { Command } from 'commander';
import { suggestedValues } from '../base/command-line.ts';

/** An option. */
export interface OptionRow {
  /** `-t`; undefined for none. */
  readonly short: string | undefined;
  /** `--json`; undefined for none. */
  readonly long: string | undefined;
  /** Flags as in the help, such as `-t <test>`. */
  readonly flags: string;
  readonly takesValue: boolean;
  /** Words to complete the value with; undefined for file names. */
  readonly values: readonly string[] | undefined;
  readonly description: string;
  /** Default value in the help; undefined for none. */
  readonly defaultText: string | undefined;
}

/** An argument. */
export interface ArgumentRow {
  /** Argument as in the usage, such as `[host]`. */
  readonly text: string;
  readonly description: string;
  readonly values: readonly string[] | undefined;
}

/** A command. */
export interface CommandTable {
  /** Names from the program to the command: `['gaudi-ucx', 'node', 'up']`. */
  readonly path: readonly string[];
  /** Last name of the path. */
  readonly name: string;
  readonly description: string;
  readonly usage: string;
  readonly options: readonly OptionRow[];
  readonly arguments: readonly ArgumentRow[];
  readonly commands: readonly CommandTable[];
}

/** The table of a command and of its subcommands. Hidden options and commands are left out. */
export function tableOf(command: Command, parents: readonly string[] = []): CommandTable {
  const help = command.createHelp();
  const path = [...parents, command.name()];
  return {
    path,
    name: command.name(),
    description: help.commandDescription(command),
    usage: command.usage(),
    options: help.visibleOptions(command).map((option) => ({
      short: option.short,
      long: option.long,
      flags: option.flags,
      takesValue: option.required || option.optional,
      values: suggestedValues(option),
      description: option.description,
      defaultText: typeof option.defaultValue === 'string' ? option.defaultValue : undefined,
    })),
    arguments: command.registeredArguments.map((argument) => ({
      text: help.argumentTerm(argument) === '' ? '' : textOf(argument),
      description: argument.description,
      values: argument.argChoices,
    })),
    // Commander's command `help` has no man page.
    commands: help
      .visibleCommands(command)
      .filter((child) => child.name() !== 'help')
      .map((child) => tableOf(child, path)),
  };
}

/** A table and the tables of all its subcommands. */
export function allTables(table: CommandTable): CommandTable[] {
  return [table, ...table.commands.flatMap(allTables)];
}

function textOf(argument: { name(): string; readonly required: boolean; readonly variadic: boolean }): string {
  const name = `${argument.name()}${argument.variadic ? '...' : ''}`;
  return argument.required ? `<${name}>` : `[${name}]`;
}

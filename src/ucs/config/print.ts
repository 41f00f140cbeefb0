/** Prints a configuration as `ucx_info -c` and `ucp_config_print` do: lines `NAME=value` that can be read back as a `ucx.conf` or an environment. */

import type { ConfigEntry } from './config.ts';

/** Options of printing. By default, prints one line for each field that is not hidden. */
export interface ConfigPrintOptions {
  /** Prints above each field its meaning, its syntax, its default, and the source of its value. */
  readonly decorated?: boolean | undefined;
  /** Includes hidden fields and deprecated names. */
  readonly hidden?: boolean | undefined;
  /** Puts # before fields that have their default. */
  readonly commentDefaults?: boolean | undefined;
  /** Prints only variables whose name contains this string. */
  readonly filter?: string | undefined;
}

const FILE_HEADER = '# UCX configuration of gaudi-ucx';

/** Prints `entries`: an empty string if none is selected, otherwise ending with a newline. */
export function printConfig(entries: readonly ConfigEntry[], options: ConfigPrintOptions = {}): string {
  const { decorated = false, hidden = false, filter = '' } = options;
  const wanted = entries.filter(({ name, field }) => (hidden || field.hidden !== true) && name.includes(filter));
  const parts = wanted.map((entry) => [
    ...(decorated ? decoration(entry) : []),
    ...(hidden ? deprecatedNames(entry) : []),
    `${options.commentDefaults === true && entry.source === 'default' ? '# ' : ''}${entry.name}=${entry.text}`,
    ...(decorated ? [''] : []),
  ]);
  const lines = decorated && parts.length > 0 ? [FILE_HEADER, '', ...parts.flat()] : parts.flat();
  return lines.map((line) => `${line}\n`).join('');
}

function decoration({ field, source, name, setBy, inherits }: ConfigEntry): string[] {
  const by = setBy === undefined || setBy === name ? '' : ` (${setBy})`;
  const facts = [
    ['syntax', field.type.syntax],
    ['default', field.default],
    ['source', `${source}${by}`],
    ...(inherits.length === 0 ? [] : [['inherits', inherits.join(', ')]]),
    ...(field.aliases === undefined ? [] : [['alias', field.aliases.map((alias) => `UCX_${alias}`).join(', ')]]),
  ];
  return [
    '#',
    `# ${field.doc}`,
    '#',
    ...facts.map(([what, text]) => `# ${`${what}:`.padEnd(10)} ${text}`.trimEnd()),
    '#',
  ];
}

function deprecatedNames({ field, name }: ConfigEntry): string[] {
  return (field.deprecatedAliases ?? []).map((alias) =>
    alias.startsWith('UCT_') ? `# ${alias} (sets ${name})` : `# ${alias} (deprecated: use ${name})`,
  );
}

/**
 * The text of a configuration, as `ucx_info -c` and `ucp_config_print` give it: lines `NAME=value` that read back as a `ucx.conf` or an
 * environment. What the values are is decided in config.ts.
 */

import type { ConfigEntry } from './config.ts';

/** What is printed. Everything is off by default: one line for each field that is not hidden. */
export interface ConfigPrintOptions {
  /** Above each field what it means, its syntax, its default, and where its value comes from. */
  readonly decorated?: boolean;
  /** Also hidden fields, and names that are deprecated. */
  readonly hidden?: boolean;
  /** Puts # before fields that nothing has set. */
  readonly commentDefaults?: boolean;
  /** Only variables whose name contains this. */
  readonly filter?: string;
}

const FILE_HEADER = '# UCX configuration of gaudi-ucx';

/** The text of `entries`; empty where nothing is to be printed. It ends with a line end otherwise. */
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
  return (field.deprecatedAliases ?? []).map((alias) => `# ${alias} (deprecated: use ${name})`);
}

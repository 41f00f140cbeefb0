/** The `info` command: what ucx_info prints, for this library. It collects and prints; describing is in info-*.ts. */

import { components } from '../assembly/context.ts';
import { openNode } from '../assembly/open-node.ts';
import { type Program, startProgram } from '../assembly/program.ts';
import type { ConfigEntry } from '../ucs/config.ts';
import { isUcxError } from '../ucs/error.ts';
import { describeMemoryDomain, describeMissing } from './info-devices.ts';
import { describeCards } from './info-system.ts';
import { packageVersion } from './package-version.ts';

/** What was asked for. */
export interface InfoOptions {
  readonly version: boolean;
  readonly devices: boolean;
  readonly config: boolean;
  /** With `config`: also fields that are hidden. */
  readonly all: boolean;
  readonly system: boolean;
}

/** The text for the options, in the order version, system, devices, configuration. */
export function describeInfo(options: InfoOptions): string {
  const program = startProgram();
  const parts: string[] = [];
  if (options.version) parts.push(`# Library version: ${packageVersion()}`);
  if (options.system || options.devices) parts.push(...describeMachine(program, options));
  if (options.config) parts.push(describeConfig(program.config.entries, options.all));
  return parts.join('\n');
}

function describeMachine(program: Program, options: InfoOptions): string[] {
  const node = openNode(program);
  try {
    const parts: string[] = [];
    if (options.system) parts.push(describeCards(node));
    if (!options.devices) return parts;
    for (const component of components(node, program.env['GAUDI_MAPPING_TABLE'])) {
      try {
        const md = component.openMd({ ...program, log: program.log.child(component.name) });
        try {
          parts.push(describeMemoryDomain(md));
        } finally {
          md.close();
        }
      } catch (error) {
        if (!isUcxError(error)) throw error;
        parts.push(describeMissing(component.name, error.message));
      }
    }
    return parts;
  } finally {
    node.close();
  }
}

/** `UCX_TLS=all`, with the meaning above and, where it is not the default, the source behind; it reads back as a ucx.conf. */
function describeConfig(entries: readonly ConfigEntry[], all: boolean): string {
  const lines: string[] = [];
  for (const { name, field, text, source, setBy } of entries) {
    if (field.hidden === true && !all) continue;
    const by = setBy === undefined || setBy === name ? '' : ` as ${setBy}`;
    lines.push(
      '#',
      `# ${field.doc}`,
      `# syntax: ${field.type.syntax}`,
      `# default: ${field.default}, source: ${source}${by}`,
    );
    lines.push('#', `${name}=${text}`, '');
  }
  return lines.join('\n').trimEnd();
}

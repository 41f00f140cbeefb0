/** The `info` command: what ucx_info prints, for this library. It collects and prints; describing is in info-*.ts. */

import { components } from '../assembly/context.ts';
import { openNode } from '../assembly/open-node.ts';
import { packageVersion } from '../assembly/package.ts';
import { type Program, startProgram } from '../assembly/program.ts';
import { readTopology } from '../assembly/topology.ts';
import { findUcxLibrary } from '../assembly/ucx-library.ts';
import { UCP_CONFIG_TABLE } from '../ucp/resources/config.ts';
import { ResourceFilter } from '../ucp/resources/resource-filter.ts';
import { printConfig } from '../ucs/config/print.ts';
import { isUcxError } from '../ucs/type/error.ts';
import { describeMemoryDomain, describeMissing } from './info-devices.ts';
import { describeLibrary, describeLibraryVersion } from './info-library.ts';
import { describeCards } from './info-system.ts';

/** What was asked for. */
export interface InfoOptions {
  readonly version: boolean;
  readonly devices: boolean;
  readonly config: boolean;
  /** With `config`: meaning, syntax, default and source of each field. */
  readonly fullConfig: boolean;
  /** With `config`: also hidden fields and deprecated names. */
  readonly all: boolean;
  /** With `config`: # before fields that nothing has set. */
  readonly commentDefaults: boolean;
  /** With `config`: only variables whose name contains this. */
  readonly filter?: string;
  readonly system: boolean;
}

/** The text for the options, in the order version, system, devices, configuration. */
export function describeInfo(options: InfoOptions): string {
  const program = startProgram();
  const parts: string[] = [];
  const library = options.version || options.devices ? findUcxLibrary(program) : undefined;
  if (options.version) parts.push(`# Library version: ${packageVersion()}`, describeLibraryVersion(library!));
  if (options.system || options.devices) parts.push(...describeMachine(program, options));
  if (options.devices) parts.push(describeLibrary(library!));
  if (options.config) parts.push(describeConfig(program, options));
  return parts.join('\n');
}

function describeConfig({ config }: Program, options: InfoOptions): string {
  const { fullConfig, all, commentDefaults, filter } = options;
  const print = { decorated: fullConfig, hidden: all, commentDefaults, ...(filter === undefined ? {} : { filter }) };
  return printConfig(config.entries, print).trimEnd();
}

function describeMachine(program: Program, options: InfoOptions): string[] {
  const node = openNode(program);
  try {
    const parts: string[] = [];
    if (options.system) parts.push(describeCards({ node, topology: readTopology({ node, ...program }) }));
    if (!options.devices) return parts;
    const filter = new ResourceFilter(program.config.get(UCP_CONFIG_TABLE));
    for (const component of components(node, program.env['GAUDI_MAPPING_TABLE'])) {
      try {
        const md = component.openMd({ ...program, log: program.log.child(component.name) });
        try {
          parts.push(describeMemoryDomain(md, (resource) => filter.exclusionOf(resource)));
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
